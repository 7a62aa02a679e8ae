module leasehold/report

go 1.26.0

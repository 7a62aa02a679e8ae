module lockwheel/report

go 1.26.0

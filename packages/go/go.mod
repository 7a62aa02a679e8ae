module lockwheel-go

go 1.21

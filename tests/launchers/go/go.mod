module lockwheel/launchers

go 1.26.0

require (
	github.com/gomodule/redigo v1.9.3
	github.com/stvp/tempredis v0.0.0-20181119212430-b82af8480203
)

require lockwheel/report v0.0.0

replace lockwheel/report => ../../report/go

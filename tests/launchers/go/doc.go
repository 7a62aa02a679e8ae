// Package launchers has what launches a redis-server in Go's tests start any server.
package launchers

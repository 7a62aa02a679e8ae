// Package launchers tests Go libraries that start a redis-server, with any server.
package launchers

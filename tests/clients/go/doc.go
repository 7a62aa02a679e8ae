// Package clients tries the lock libraries of Go, each as it is published.
package clients

// The README's code on a server that tests share.

package readme

import (
	"log"
	"testing"

	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

var shared *lockwheel.Server

func TestMain(m *testing.M) {
	var err error
	if shared, err = lockwheel.Start(); err != nil {
		log.Fatal(err)
	}
	m.Run()
}

func TestOnTheSharedServer(t *testing.T) {
	server := lockwheeltest.Use(t, shared) // It is reset.
	server.Call("SET", "invoice", "token", "NX", "PX", 30_000)
}

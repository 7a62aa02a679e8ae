package readme

import (
	"log"
	"testing"

	leasehold "github.com/leasehold/leasehold-go"
	"github.com/leasehold/leasehold-go/leaseholdtest"
)

var shared *leasehold.Server

func TestMain(m *testing.M) {
	var err error
	if shared, err = leasehold.Start(); err != nil {
		log.Fatal(err)
	}
	m.Run()
}

func TestOnTheSharedServer(t *testing.T) {
	server := leaseholdtest.Use(t, shared) // It is as at its start.
	server.Call("SET", "invoice", "token", "NX", "PX", 30_000)
}

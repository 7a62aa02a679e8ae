// The README's code on faults, the journal and lint findings.

package readme

import (
	"context"
	"testing"
	"time"

	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestALostReply(t *testing.T) {
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	client := connect(t, server)
	lost := server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "set", Times: 1})

	// By default go-redis sends the request again, and its own lock refuses it.
	taken := client.SetNX(context.Background(), "invoice", "token", 30*time.Second).Val()
	if taken || lost.State().Fired != 1 {
		t.Error("no reply was lost")
	}
	owner := client.Get(context.Background(), "invoice").Val()
	if owner != "token" {
		t.Errorf("it is the lock of %s", owner)
	}
}

func TestTheLockOfAnotherClientIsDeleted(t *testing.T) {
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	a, b := connect(t, server), connect(t, server)
	ctx := context.Background()
	a.SetNX(ctx, "invoice", "a", 30*time.Second)

	gate := server.Faults.Gate(lockwheel.Requests{Command: "del"})
	released := make(chan bool)
	go func() {
		if a.Get(ctx, "invoice").Val() == "a" { // The client owns the lock ...
			a.Del(ctx, "invoice") // ... and deletes it.
		}
		close(released)
	}()
	gate.Wait()
	server.Clock.Advance(30 * time.Second)
	b.SetNX(ctx, "invoice", "b", 30*time.Second)
	gate.Open()
	<-released

	if b.Exists(ctx, "invoice").Val() == 1 {
		t.Error("b still has its lock: this recipe is safe")
	}
}

func TestLocksAreReleased(t *testing.T) {
	server := lockwheeltest.Start(t)
	t.Cleanup(server.Journal.AssertNoLockHeld)
	t.Cleanup(server.Journal.AssertReleasedOnlyByOwner)

	client := connect(t, server)
	client.SetNX(context.Background(), "invoice", "token", 30*time.Second)
	client.Del(context.Background(), "invoice")

	for _, mistake := range server.Journal.Lint() {
		t.Log(mistake.Sentence) // the lock 'invoice' was deleted without a check of its owner: ...
	}
}

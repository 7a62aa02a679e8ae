// Tests the journal and its checks.

package packages

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestAFailedCheckListsTheEntriesOfTheJournal(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	a, b := dial(t, server).Conn(), dial(t, server).Conn()
	no(t, a.ClientSetName(background, "worker").Err())
	no(t, a.SetNX(background, "lock", "token-a", 50*time.Millisecond).Err())
	server.Clock.Advance(50 * time.Millisecond)
	no(t, b.SetNX(background, "lock", "token-b", 50*time.Millisecond).Err())
	server.Clock.Advance(20 * time.Millisecond)
	no(t, a.Del(background, "lock").Err())

	server.Journal.AssertNoLockHeld()
	server.Journal.AssertEveryLockHasALease()
	broken := server.Journal.Broken(lockwheel.ReleasedOnlyByOwner)
	is(t, broken.Check, lockwheel.ReleasedOnlyByOwner)
	id := func(index int) int64 { return broken.Story[index].Client }
	names := strings.NewReplacer("A", "client "+itoa(id(0))+" 'worker'", "B", "client "+itoa(id(3)))
	is(t, withoutNumbers(broken.Error()), names.Replace(
		"released-only-by-owner: the lock 'lock' of B was released by A\n"+
			"  +0 ms A: set lock token-a px 50 nx -> OK\n"+
			"  +0 ms A: acquired 'lock' as 'token-a' for 50 ms\n"+
			"  +50 ms the clock: ended the lease of 'lock', held as 'token-a' by "+
			"client "+itoa(id(0))+"\n"+
			"  +50 ms B: set lock token-b px 50 nx -> OK\n"+
			"  +50 ms B: acquired 'lock' as 'token-b' for 50 ms\n"+
			"  +70 ms A: del lock -> 1\n"+
			"  +70 ms A: released 'lock', which is that of 'token-b', taken by B"))
}

func TestTheJournalListsLocksAndFindings(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	client := dial(t, server)
	no(t, client.SetNX(background, "lock", "token", 0).Err())
	no(t, client.SetNX(background, "lock", "other", 0).Err())
	held := server.Journal.Locks()
	is(t, len(held), 1)
	is(t, held[0].Key+" "+held[0].Owner, "lock token")
	is(t, held[0].SinceMs, server.Clock.Now().UnixMilli())
	is(t, held[0].LeaseMs, nil)
	is(t, len(held[0].Waiting), 1)
	no(t, client.Expire(background, "lock", 30*time.Second).Err())
	is(t, *server.Journal.Locks()[0].LeaseMs, 30_000)
	no(t, client.Del(background, "lock").Err())

	found := server.Journal.Lint()
	is(t, len(found), 2)
	is(t, found[0].Rule+" "+found[0].Key, "lease-in-a-second-step lock")
	is(t, found[1].Rule+" "+found[1].Key, "delete-without-check lock")
	advice := "compare and delete in one script"
	holds(t, strings.HasSuffix(found[1].Sentence, advice), "it says: %s", found[1].Sentence)
	story := withoutNumbers(server.Journal.Story(2))
	name := "client " + itoa(server.Journal.Entries()[1].Client)
	is(t, story, "  +0 ms "+name+": del lock -> 1\n  +0 ms "+name+": released 'lock' as 'token'\n")
	events := ""
	for _, entry := range server.Journal.Entries() {
		if entry.Event != "command" {
			events += entry.Event + " "
		}
	}
	is(t, events, "acquired refused renewed released ")

	server.Journal.Clear()
	is(t, len(server.Journal.Lint()), 0)
	is(t, len(server.Journal.Entries()), 0)
}

func TestTheTypesHaveAllFieldsOfTheReplies(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	client := dial(t, server)
	no(t, client.SetNX(background, "lock", "token", 0).Err())
	no(t, client.SetNX(background, "lock", "other", 0).Err())
	requests := lockwheel.Requests{Command: "get", Key: "k", Client: "c", ClientID: 7, Nth: 1, Times: 2,
		Probability: 0.5, Seed: 3}
	for _, fault := range []lockwheel.Fault{lockwheel.Delay(time.Second), lockwheel.Cut(1),
		lockwheel.AnswerError("ERR no"), lockwheel.JumpAfter(time.Second), lockwheel.LoseWrites(1)} {
		server.Faults.Add(fault, requests)
	}
	server.Faults.Gate(requests)
	for _, reply := range []struct {
		words []any
		into  any
	}{
		{[]any{"LOCKWHEEL", "JOURNAL"}, &[]lockwheel.Entry{}},
		{[]any{"LOCKWHEEL", "LOCKS"}, &[]lockwheel.Lock{}},
		{[]any{"LOCKWHEEL", "LINT"}, &[]lockwheel.Finding{}},
		{[]any{"LOCKWHEEL", "FAULT", "LIST"}, &[]lockwheel.State{}},
		{[]any{"LOCKWHEEL", "GATE", "LIST"}, &[]lockwheel.State{}},
	} {
		decoder := json.NewDecoder(strings.NewReader(server.Call(reply.words...).(string)))
		decoder.DisallowUnknownFields()
		no(t, decoder.Decode(reply.into))
	}
	delay := server.Faults.List()[0]
	is(t, delay.Requests, requests)
	is(t, delay.DelayMs, 1000)
}

// Tests the journal and its checks.

package packages

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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
	a1, b1 := "client "+itoa(broken.Story[0].Client), "client "+itoa(broken.Story[4].Client)
	library := " (" + broken.Story[0].Library + ")"
	names := strings.NewReplacer("A1", a1, "B1", b1, "A", a1+" 'worker'"+library, "B", b1+library)
	is(t, withoutNumbers(broken.Error()), names.Replace(
		"released-only-by-owner: the lock 'lock' of B1 was released by A1 'worker'\n"+
			"  +0 ms A: set lock token-a px 50 nx -> OK\n"+
			"  +0 ms A: acquired 'lock' as 'token-a' for 50 ms\n"+
			"  +0 ms the clock: was advanced by 50 ms\n"+
			"  +50 ms the clock: ended the lease of 'lock', held as 'token-a' by A1\n"+
			"  +50 ms B1: connected\n"+
			"  +50 ms B: set lock token-b px 50 nx -> OK\n"+
			"  +50 ms B: acquired 'lock' as 'token-b' for 50 ms\n"+
			"  +50 ms the clock: was advanced by 20 ms\n"+
			"  +70 ms A: del lock -> 1\n"+
			"=>+70 ms A: released 'lock', which is that of 'token-b', taken by B1"))
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
	last := server.Journal.Entries()[12]
	name := "client " + itoa(last.Client) + " (" + last.Library + ")"
	is(t, story, "  +0 ms "+name+": del lock -> 1\n  +0 ms "+name+": released 'lock' as 'token'\n")
	events := ""
	for _, entry := range server.Journal.Entries() {
		if entry.Event != "command" && entry.Event != "connected" {
			events += entry.Event + " "
		}
	}
	is(t, events, "acquired refused renewed released ")

	server.Journal.Clear()
	is(t, len(server.Journal.Lint()), 0)
	is(t, len(server.Journal.Entries()), 0)
}

// unique is a token that no other client uses.
const unique = "a2f1c7a9-58f4-4a6e-9d54-0f0e9f3c8a11"

type breach = func(t *testing.T, clock lockwheeltest.Clock, a, b *redis.Client)

// breaches are how one or two clients break each check.
var breaches = map[lockwheel.Check]breach{
	lockwheel.NoLockHeld: func(t *testing.T, _ lockwheeltest.Clock, a, _ *redis.Client) {
		take(t, a, "a")
	},
	lockwheel.EveryLockHasALease: func(t *testing.T, _ lockwheeltest.Clock, a, _ *redis.Client) {
		a.SetNX(background, "lock", "a", 0)
	},
	lockwheel.ReleasedOnlyByOwner: func(t *testing.T, _ lockwheeltest.Clock, a, b *redis.Client) {
		take(t, a, "a")
		b.Del(background, "lock")
	},
	lockwheel.NeverTwoHolders: func(t *testing.T, clock lockwheeltest.Clock, a, b *redis.Client) {
		take(t, a, "a")
		clock.Advance(lease)
		take(t, b, "b")
		release(t, a, "a")
	},
	lockwheel.RefusedByOwnToken: func(t *testing.T, _ lockwheeltest.Clock, a, _ *redis.Client) {
		take(t, a, unique) // Tokens that others may use too are not compared.
		take(t, a, unique)
	},
	lockwheel.NoWaiterLost: func(t *testing.T, _ lockwheeltest.Clock, a, b *redis.Client) {
		take(t, a, "a")
		take(t, b, "b")
		a.Del(background, "lock")
	},
	lockwheel.RenewedBeforeExpiry: func(
		t *testing.T, clock lockwheeltest.Clock, a, _ *redis.Client,
	) {
		take(t, a, "a")
		clock.Advance(lease)
	},
}

func TestABrokenCheckMarksTheEntryThatBrokeIt(t *testing.T) {
	t.Parallel()
	marked := regexp.MustCompile(`\n=> *\+\d+ ms #\d+ .*'lock'`)
	for check, breach := range breaches {
		server := lockwheeltest.Start(t, lockwheel.Frozen())
		a, b := dial(t, server), dial(t, server)
		is(t, take(t, a, unique), true)
		is(t, take(t, b, "b"+unique), false)
		is(t, release(t, a, unique), true)
		is(t, take(t, b, "b"+unique), true)
		server.Clock.Advance(lease / 2)
		is(t, release(t, b, "b"+unique), true)
		is(t, server.Journal.Broken(check), nil)

		breach(t, server.Clock, a, b)
		broken := server.Journal.Broken(check)
		holds(t, broken != nil, "%s holds", check)
		matches(t, broken.Error(), `\n  \+0 ms #\d+ client \d+ \(go-redis.*\): set.* lock a`)
		is(t, len(marked.FindAllString(broken.Error(), -1)), 1)
	}
}

func TestACheckIsAboutAKeyAClientAndWhatCameAfterAnEntry(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	worker := dial(t, server).Conn()
	no(t, worker.ClientSetName(background, "worker").Err())
	no(t, worker.SetNX(background, "lock", "a", 30*time.Second).Err())
	about := server.Journal.Only(lockwheel.Scope{Key: "lock"})
	acquired := about.Entries()[1]
	is(t, acquired.Event, "acquired")
	is(t, strings.Count(about.Story(10), "\n"), 2)
	client := acquired.Client
	for scope, isBroken := range map[lockwheel.Scope]bool{
		{Key: "l*"}:                    true,
		{Client: itoa(client)}:         true,
		{Client: "worker"}:             true,
		{Since: acquired.Seq - 1}:      true,
		{Key: "job:*"}:                 false,
		{Client: itoa(client + 100)}:   false,
		{Client: "other"}:              false,
		{Since: acquired.Seq}:          false,
		{Key: "l*", Client: "another"}: false,
	} {
		broken := server.Journal.Only(scope).Broken(lockwheel.NoLockHeld)
		holds(t, (broken != nil) == isBroken, "%+v: %v", scope, broken)
	}
}

func TestAPossibleLockBreaksACheckThatNamesItsKey(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	server.Call("SET", "idem:1", "done", "NX", "EX", 3600)
	server.Journal.AssertNoLockHeld()
	broken := server.Journal.Only(lockwheel.Scope{Key: "idem:*"}).Broken(lockwheel.NoLockHeld)
	matches(t, broken.Sentence, `holds the lock 'idem:1' as 'done'`)
	known := server.Journal.KnownLocks()[0]
	is(t, known.Key+" "+known.Shape+" "+known.Confidence, "idem:1 token possible")
	is(t, known.Held, true)
}

// heldKeys takes two keys, and returns those that are surely locks.
func heldKeys(server *lockwheeltest.Server) (keys string) {
	server.Call("FLUSHALL")
	server.Call("SET", "job:1", "1", "NX", "PX", 30_000)
	server.Call("SET", "tmp:1", unique, "NX", "PX", 30_000)
	for _, lock := range server.Journal.Locks() {
		if lock.Confidence != "possible" {
			keys += lock.Key
		}
	}
	return keys
}

func TestKeysAreDeclaredAsLocksAndAsNone(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	is(t, heldKeys(server), "tmp:1")
	server.Journal.DeclareLocks("job:*")
	server.Journal.IgnoreLocks("tmp:*")
	is(t, heldKeys(server), "job:1")

	server = lockwheeltest.Start(t, lockwheel.LockKeys("cron:*", "job:*"),
		lockwheel.IgnoredLockKeys("tmp:*"))
	is(t, heldKeys(server), "job:1")
	server.Reset()
	is(t, heldKeys(server), "job:1")
	server.Restart()
	is(t, heldKeys(server), "job:1")
}

func TestAStoryShowsThatAReplyWasLost(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "set"})
	client := dial(t, server)
	holds(t, client.SetNX(background, "lock", "token", time.Minute).Err() != nil, "it has a reply")
	story := server.Journal.Only(lockwheel.Scope{Key: "lock"}).Story(10)
	lost := `\[fault 1: executed; reply lost; connection closed\]`
	matches(t, story, `: set lock token ex 60 nx -> OK `+lost+`\n`)
	matches(t, story, `: acquired 'lock' as 'token' for 60000 ms\n`)
}

func TestAnUnknownCheckIsRefusedWithTheKnownOnes(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	err := server.Server.Journal.Check("no-lock-helt")
	holds(t, err != nil, "it is accepted")
	matches(t, err.Error(), `unknown check 'no-lock-helt'; did you mean no-lock-held\? `+
		`Known: .*no-waiter-lost`)
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
		{[]any{"LOCKWHEEL", "JOURNAL", "HOLDERS"}, &[]lockwheel.Lock{}},
		{[]any{"LOCKWHEEL", "JOURNAL", "KNOWN"}, &[]lockwheel.KnownLock{}},
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

// Package lockwheeltest starts a lock server for a test and stops it with the test.
//
//	server := lockwheeltest.Start(t, lockwheel.Frozen())
//	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
//
// Each method does the same as the method of this name in package lockwheel, and fails the test where
// that returns an error. Call it from the goroutine of the test, as [testing.TB.FailNow].
package lockwheeltest

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	lockwheel "lockwheel-go"
)

// The number of entries of the journal that a failed test shows.
const storyMax = 40

// Server is a running server. Its errors fail the test.
type Server struct {
	*lockwheel.Server
	Clock   Clock
	Faults  Faults
	Journal Journal
	t       testing.TB
}

// Start starts a server for this test and stops it with the test. A failed test logs the end of the
// journal, unless it failed by a check of this server, whose message has the entries of the lock.
func Start(t testing.TB, options ...lockwheel.Option) *Server {
	t.Helper()
	started, err := lockwheel.Start(options...)
	no(t, err)
	t.Cleanup(func() { no(t, started.Stop()) })
	return use(t, started)
}

// Use resets a server that several tests share, for the next test.
func Use(t testing.TB, shared *lockwheel.Server) *Server {
	t.Helper()
	no(t, shared.Reset())
	return use(t, shared)
}

func use(t testing.TB, server *lockwheel.Server) *Server {
	journal := Journal{t, server.Journal, nil, new(bool)}
	t.Cleanup(func() {
		if t.Failed() && !*journal.shown {
			logStory(t, server)
		}
	})
	return &Server{server, Clock{t, server.Clock}, Faults{t, server.Faults}, journal, t}
}

// logStory logs the end of the journal, or the log if the server does not reply.
func logStory(t testing.TB, server *lockwheel.Server) {
	t.Helper()
	story, err := server.Journal.Story(storyMax)
	if err != nil {
		t.Logf("the server at %s does not reply: %v\nits output:\n%s",
			server.Addr(), err, server.Log())
		return
	}
	t.Logf("the journal of the server at %s, at most the last %d entries:\n%s",
		server.Addr(), storyMax, story)
}

// Call is [lockwheel.Server.Call].
func (s *Server) Call(arguments ...any) any {
	s.t.Helper()
	return must(s.Server.Call(arguments...))(s.t)
}

// Reset is [lockwheel.Server.Reset].
func (s *Server) Reset() {
	s.t.Helper()
	no(s.t, s.Server.Reset())
}

// Restart is [lockwheel.Server.Restart].
func (s *Server) Restart() {
	s.t.Helper()
	no(s.t, s.Server.Restart())
}

// Stop is [lockwheel.Server.Stop].
func (s *Server) Stop() {
	s.t.Helper()
	no(s.t, s.Server.Stop())
}

// Clock is [lockwheel.Clock].
type Clock struct {
	t     testing.TB
	clock lockwheel.Clock
}

// Freeze is [lockwheel.Clock.Freeze].
func (c Clock) Freeze() {
	c.t.Helper()
	no(c.t, c.clock.Freeze())
}

// Run is [lockwheel.Clock.Run].
func (c Clock) Run(times float64) {
	c.t.Helper()
	no(c.t, c.clock.Run(times))
}

// Advance is [lockwheel.Clock.Advance].
func (c Clock) Advance(span time.Duration) {
	c.t.Helper()
	no(c.t, c.clock.Advance(span))
}

// Set is [lockwheel.Clock.Set].
func (c Clock) Set(moment time.Time) {
	c.t.Helper()
	no(c.t, c.clock.Set(moment))
}

// Jump is [lockwheel.Clock.Jump].
func (c Clock) Jump(span time.Duration) {
	c.t.Helper()
	no(c.t, c.clock.Jump(span))
}

// Step is [lockwheel.Clock.Step].
func (c Clock) Step(span time.Duration) {
	c.t.Helper()
	no(c.t, c.clock.Step(span))
}

// Now is [lockwheel.Clock.Now].
func (c Clock) Now() time.Time {
	c.t.Helper()
	return must(c.clock.Now())(c.t)
}

// Wall is [lockwheel.Clock.Wall].
func (c Clock) Wall() time.Time {
	c.t.Helper()
	return must(c.clock.Wall())(c.t)
}

// Rate is [lockwheel.Clock.Rate].
func (c Clock) Rate() float64 {
	c.t.Helper()
	return must(c.clock.Rate())(c.t)
}

// Faults is [lockwheel.Faults].
type Faults struct {
	t      testing.TB
	faults lockwheel.Faults
}

// Add is [lockwheel.Faults.Add].
func (f Faults) Add(fault lockwheel.Fault, requests lockwheel.Requests) Rule {
	f.t.Helper()
	return Rule{f.t, must(f.faults.Add(fault, requests))(f.t)}
}

// Gate is [lockwheel.Faults.Gate].
func (f Faults) Gate(requests lockwheel.Requests) Gate {
	f.t.Helper()
	return Gate{f.t, must(f.faults.Gate(requests))(f.t)}
}

// Failover is [lockwheel.Faults.Failover].
func (f Faults) Failover(lose int) int {
	f.t.Helper()
	return must(f.faults.Failover(lose))(f.t)
}

// List is [lockwheel.Faults.List].
func (f Faults) List() []lockwheel.State {
	f.t.Helper()
	return must(f.faults.List())(f.t)
}

// Gates is [lockwheel.Faults.Gates].
func (f Faults) Gates() []lockwheel.State {
	f.t.Helper()
	return must(f.faults.Gates())(f.t)
}

// Clear is [lockwheel.Faults.Clear].
func (f Faults) Clear() {
	f.t.Helper()
	no(f.t, f.faults.Clear())
}

// Rule is [lockwheel.Rule].
type Rule struct {
	t    testing.TB
	rule lockwheel.Rule
}

// State is [lockwheel.Rule.State].
func (r Rule) State() lockwheel.State {
	r.t.Helper()
	return must(r.rule.State())(r.t)
}

// Wait is [lockwheel.Rule.Wait].
func (r Rule) Wait() {
	r.t.Helper()
	no(r.t, r.rule.Wait())
}

// Clear is [lockwheel.Rule.Clear].
func (r Rule) Clear() {
	r.t.Helper()
	no(r.t, r.rule.Clear())
}

// Gate is [lockwheel.Gate].
type Gate struct {
	t    testing.TB
	gate lockwheel.Gate
}

// Wait is [lockwheel.Gate.Wait].
func (g Gate) Wait() int64 {
	g.t.Helper()
	return must(g.gate.Wait())(g.t)
}

// Open is [lockwheel.Gate.Open].
func (g Gate) Open() int {
	g.t.Helper()
	return must(g.gate.Open())(g.t)
}

// Journal is [lockwheel.Journal].
type Journal struct {
	t       testing.TB
	journal lockwheel.Journal
	scopes  []lockwheel.Scope
	// Whether a check of this journal failed, in a test that failed by a check first.
	shown *bool
}

// failedByCheck contains the tests whose first error was a failed check.
var failedByCheck sync.Map

// Only returns a journal whose entries, findings and checks are only about this scope:
//
//	t.Cleanup(server.Journal.Only(lockwheel.Scope{Key: "lock:*"}).AssertNoLockHeld)
func (j Journal) Only(scope lockwheel.Scope) Journal {
	j.scopes = append(slices.Clone(j.scopes), scope)
	return j
}

// KnownLocks is [lockwheel.Journal.KnownLocks].
func (j Journal) KnownLocks() []lockwheel.KnownLock {
	j.t.Helper()
	return must(j.journal.KnownLocks())(j.t)
}

// DeclareLocks is [lockwheel.Journal.DeclareLocks].
func (j Journal) DeclareLocks(pattern string) {
	j.t.Helper()
	no(j.t, j.journal.DeclareLocks(pattern))
}

// IgnoreLocks is [lockwheel.Journal.IgnoreLocks].
func (j Journal) IgnoreLocks(pattern string) {
	j.t.Helper()
	no(j.t, j.journal.IgnoreLocks(pattern))
}

// Entries is [lockwheel.Journal.Entries].
func (j Journal) Entries() []lockwheel.Entry {
	j.t.Helper()
	return must(j.journal.Entries(j.scopes...))(j.t)
}

// Story is [lockwheel.Journal.Story].
func (j Journal) Story(count int) string {
	j.t.Helper()
	return must(j.journal.Story(count, j.scopes...))(j.t)
}

// Locks is [lockwheel.Journal.Locks].
func (j Journal) Locks() []lockwheel.Lock {
	j.t.Helper()
	return must(j.journal.Locks())(j.t)
}

// Lint is [lockwheel.Journal.Lint].
func (j Journal) Lint() []lockwheel.Finding {
	j.t.Helper()
	return must(j.journal.Lint(j.scopes...))(j.t)
}

// Clear is [lockwheel.Journal.Clear].
func (j Journal) Clear() {
	j.t.Helper()
	no(j.t, j.journal.Clear())
}

// Broken returns the first violation of a check, or nil.
func (j Journal) Broken(check lockwheel.Check) *lockwheel.Broken {
	j.t.Helper()
	err := j.journal.Check(check, j.scopes...)
	var broken *lockwheel.Broken
	if err != nil && !errors.As(err, &broken) {
		j.t.Fatal(err)
	}
	return broken
}

// AssertNoLockHeld reports an error if a client holds a lock. To check at the end of the test, use
// t.Cleanup(server.Journal.AssertNoLockHeld).
func (j Journal) AssertNoLockHeld() {
	j.t.Helper()
	j.assert(lockwheel.NoLockHeld)
}

// AssertNeverTwoHolders reports an error if a lock was taken while a former holder still used it.
func (j Journal) AssertNeverTwoHolders() {
	j.t.Helper()
	j.assert(lockwheel.NeverTwoHolders)
}

// AssertEveryLockHasALease reports an error if a lock has no lease.
func (j Journal) AssertEveryLockHasALease() {
	j.t.Helper()
	j.assert(lockwheel.EveryLockHasALease)
}

// AssertReleasedOnlyByOwner reports an error if a client released the lock of another.
func (j Journal) AssertReleasedOnlyByOwner() {
	j.t.Helper()
	j.assert(lockwheel.ReleasedOnlyByOwner)
}

// AssertNotRefusedByOwnToken reports an error if a client was refused a lock that holds its own
// token.
func (j Journal) AssertNotRefusedByOwnToken() {
	j.t.Helper()
	j.assert(lockwheel.RefusedByOwnToken)
}

// AssertNoWaiterLost reports an error if a client that was refused a lock has not acquired it
// since, although it is free.
func (j Journal) AssertNoWaiterLost() {
	j.t.Helper()
	j.assert(lockwheel.NoWaiterLost)
}

// AssertRenewedBeforeExpiry reports an error if a lease expired.
func (j Journal) AssertRenewedBeforeExpiry() {
	j.t.Helper()
	j.assert(lockwheel.RenewedBeforeExpiry)
}

func (j Journal) assert(check lockwheel.Check) {
	j.t.Helper()
	err := j.journal.Check(check, j.scopes...)
	var broken *lockwheel.Broken
	if errors.As(err, &broken) {
		if !j.t.Failed() {
			failedByCheck.Store(j.t, true)
		}
		_, *j.shown = failedByCheck.Load(j.t)
	}
	if err != nil {
		j.t.Error(err)
	}
}

// no ends the test if there is an error.
func no(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns the value, or ends the test if there is an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		no(t, err)
		return value
	}
}

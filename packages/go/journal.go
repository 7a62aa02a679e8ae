// The journal of a server: entries, locks, lint findings and checks.

package lockwheel

// Journal is the journal of a server: its commands, the events of its locks, lint findings and
// checks. Locks are recognised from the effects of commands, whatever library sends them.
type Journal struct{ server *Server }

// Check is a check of all locks.
type Check string

const (
	// NoLockHeld: no client holds a lock.
	NoLockHeld Check = "no-lock-held"
	// NeverTwoHolders: no lock was taken while a former holder still used it.
	NeverTwoHolders Check = "never-two-holders"
	// EveryLockHasALease: every lock has a lease.
	EveryLockHasALease Check = "every-lock-has-a-lease"
	// ReleasedOnlyByOwner: no client released the lock of another.
	ReleasedOnlyByOwner Check = "released-only-by-owner"
	// RefusedByOwnToken: no client was refused a lock that holds its own token.
	RefusedByOwnToken Check = "refused-by-own-token"
	// NoWaiterLost: every client that was refused a lock has acquired it since.
	NoWaiterLost Check = "no-waiter-lost"
	// RenewedBeforeExpiry: no lease expired.
	RenewedBeforeExpiry Check = "renewed-before-expiry"
)

// Scope says what a check, lint or the entries are about. The zero value is everything.
type Scope struct {
	// Key: only keys that match this pattern. Checks also consider keys that are only possibly
	// locks.
	Key string
	// Client: only what this client has done: its CLIENT ID, or its name.
	Client string
	// Since: only what happened after the entry with this number.
	Since int64
}

// words appends the scopes to a command.
func words(command []any, scopes []Scope) []any {
	for _, scope := range scopes {
		if scope.Key != "" {
			command = append(command, "KEY", scope.Key)
		}
		if scope.Client != "" {
			command = append(command, "CLIENT", scope.Client)
		}
		if scope.Since > 0 {
			command = append(command, "SINCE", scope.Since)
		}
	}
	return command
}

// Broken is the error of a failed [Check].
type Broken struct {
	Check Check `json:"check"`
	// Sentence describes the first violation.
	Sentence string `json:"sentence"`
	// Story are the entries of that lock, in time order.
	Story []Entry `json:"story"`
	// The same as text.
	text string
}

func (b *Broken) Error() string { return b.text }

// Check returns a [*Broken] if the check fails, and another error if it cannot run.
func (j Journal) Check(check Check, scope ...Scope) error {
	var verdict struct {
		Broken
		Holds bool   `json:"holds"`
		Text  string `json:"text"`
	}
	command := append(words([]any{"LOCKWHEEL", "CHECK", check}, scope), "STORY")
	err := j.server.callJSON(&verdict, command...)
	if err != nil || verdict.Holds {
		return err
	}
	verdict.text = verdict.Text
	return &verdict.Broken
}

// Entries returns the entries in time order. The server keeps the last thousands.
func (j Journal) Entries(scope ...Scope) (entries []Entry, err error) {
	return entries, j.server.callJSON(&entries, words([]any{"LOCKWHEEL", "JOURNAL"}, scope)...)
}

// Story returns the last entries as text: at most count of them in time order, one line each.
func (j Journal) Story(count int, scope ...Scope) (string, error) {
	command := words([]any{"LOCKWHEEL", "JOURNAL", "COUNT", count}, scope)
	story, err := j.server.Call(append(command, "TEXT")...)
	text, _ := story.(string)
	return text, err
}

// Lock is a held lock.
type Lock struct {
	Key      string `json:"key"`
	Database int    `json:"database"`
	// Owner is the token, or the field of a hash.
	Owner string `json:"owner"`
	// Count is how many times the owner holds it.
	Count int64 `json:"count"`
	// Client is the CLIENT ID of the client that took it, and Name the name of that client.
	Client int64  `json:"client"`
	Name   string `json:"name"`
	// SinceMs is when it was taken, in milliseconds since 1970 on the clock that leases end by.
	SinceMs int64 `json:"since_ms"`
	// LeaseMs is the rest of the lease, nil if there is none.
	LeaseMs *int64 `json:"lease_ms"`
	// Waiting are the CLIENT IDs of the clients that were refused and have not acquired it since.
	Waiting []int64 `json:"waiting"`
	// Shape is "token", "owners" or "semaphore".
	Shape string `json:"shape"`
	// Confidence is how sure it is that the key is a lock: "certain", "likely" or "possible".
	Confidence string `json:"confidence"`
	// Reason is why it is a lock.
	Reason string `json:"reason"`
}

// KnownLock is a key that is or was a lock, possibly.
type KnownLock struct {
	Key      string `json:"key"`
	Database int    `json:"database"`
	// Shape, Confidence and Reason are as those of a [Lock].
	Shape      string `json:"shape"`
	Confidence string `json:"confidence"`
	Reason     string `json:"reason"`
	// Held is whether it is held now.
	Held bool `json:"held"`
}

// KnownLocks returns the keys that are or were locks, also those that are only possibly locks.
func (j Journal) KnownLocks() (locks []KnownLock, err error) {
	return locks, j.server.callJSON(&locks, "LOCKWHEEL", "JOURNAL", "KNOWN")
}

// DeclareLocks declares that keys that match the pattern are locks, however they are made.
func (j Journal) DeclareLocks(pattern string) error {
	_, err := j.server.Call("LOCKWHEEL", "JOURNAL", "DECLARE", pattern)
	return err
}

// IgnoreLocks declares that keys that match the pattern are no locks.
func (j Journal) IgnoreLocks(pattern string) error {
	_, err := j.server.Call("LOCKWHEEL", "JOURNAL", "IGNORE", pattern)
	return err
}

// Locks returns the held locks, also those that are only possibly locks.
func (j Journal) Locks() (locks []Lock, err error) {
	return locks, j.server.callJSON(&locks, "LOCKWHEEL", "JOURNAL", "HOLDERS")
}

// Finding is a common mistake in the use of the lock of one key.
type Finding struct {
	// Rule is its name, such as "delete-without-check".
	Rule string `json:"rule"`
	Key  string `json:"key"`
	// Sentence describes the problem and its correction.
	Sentence string `json:"sentence"`
	// Count is the number of occurrences.
	Count int64 `json:"count"`
	// Entries are those of the first occurrence.
	Entries []Entry `json:"entries"`
}

// Lint returns common mistakes in the use of locks.
func (j Journal) Lint(scope ...Scope) (findings []Finding, err error) {
	return findings, j.server.callJSON(&findings, words([]any{"LOCKWHEEL", "LINT"}, scope)...)
}

// Clear removes all entries. Held locks stay recognised.
func (j Journal) Clear() error {
	_, err := j.server.Call("LOCKWHEEL", "JOURNAL", "CLEAR")
	return err
}

// Entry is an entry of the journal. Event determines which fields are set.
type Entry struct {
	// Seq is its number, counted from 1.
	Seq int64 `json:"seq"`
	// TimeMs is its time, in milliseconds since 1970 on the clock that leases end by.
	TimeMs int64 `json:"time_ms"`
	// Client is the CLIENT ID of the client, 0 if there was none.
	Client int64  `json:"client"`
	Name   string `json:"name"`
	// Library is the library of the client, if it has named one.
	Library string `json:"library"`
	// Request is the number of the request, the same for all entries of a script or a transaction.
	Request int64 `json:"request"`
	// Possible is whether the key is only possibly a lock.
	Possible bool `json:"possible"`
	// Event is "command", "fault", "freed", "clock", "connected", "disconnected", or the event of a
	// lock: "acquired", "renewed", "refused", "released", "released-by-non-owner",
	// "expired-while-held", "flushed", "waited", "released-too-late", "renewed-too-late",
	// "recognised".
	Event string   `json:"event"`
	Keys  []string `json:"keys"`

	// Argv, Reply and Script (whether a script called it) are those of a command.
	Argv   []string `json:"argv"`
	Reply  string   `json:"reply"`
	Script bool     `json:"script"`
	// Transaction is whether EXEC ran the command.
	Transaction bool `json:"transaction"`
	// Fault is the fault that happened to the request, if any.
	Fault *AppliedFault `json:"fault"`
	// Rule is the number of the rule that held a client.
	Rule int64 `json:"rule"`
	// Order is what happened to the clock.
	Order string `json:"order"`
	// Reason is why a key is a lock.
	Reason string `json:"reason"`

	// Owner is the present or former owner of the lock.
	Owner string `json:"owner"`
	// Count is how many times the owner holds it, Left how many holds are left.
	Count int64 `json:"count"`
	Left  int64 `json:"left"`
	// LeaseMs is the lease, nil if there is none.
	LeaseMs *int64 `json:"lease_ms"`
	// By is the owner that was refused. Holder is the owner at that time, or else the CLIENT ID of
	// the client that had taken the lock.
	By     string `json:"by"`
	Holder any    `json:"holder"`
	// WaitedMs is the time from the first refusal to the acquisition, LateMs the time from the loss
	// of the lock to the late command.
	WaitedMs int64 `json:"waited_ms"`
	LateMs   int64 `json:"late_ms"`
}

// AppliedFault is a fault that happened to a request.
type AppliedFault struct {
	// Rule is the number of the rule.
	Rule int64 `json:"rule"`
	// Effect is what happened: "executed; reply lost; connection closed".
	Effect string `json:"effect"`
}

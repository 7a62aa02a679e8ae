package lockwheel

// Journal is what has happened on a server: its commands, what became of its locks, and what is to
// be said of that. Locks are recognised from what commands do, whatever library sends them.
type Journal struct{ server *Server }

// Check is a rule that must hold of all locks.
type Check string

const (
	// NoLockHeld: nobody holds a lock any more.
	NoLockHeld Check = "no-lock-held"
	// NeverTwoHolders: nobody took a lock that another came back for.
	NeverTwoHolders Check = "never-two-holders"
	// EveryLockHasALease: no lock stays if its owner dies.
	EveryLockHasALease Check = "every-lock-has-a-lease"
	// ReleasedOnlyByOwner: no lock was taken from its owner.
	ReleasedOnlyByOwner Check = "released-only-by-owner"
)

// Broken is the error for a [Check] that does not hold.
type Broken struct {
	Check Check `json:"check"`
	// Sentence is what broke it first.
	Sentence string `json:"sentence"`
	// Story is what has happened to that lock, in time order.
	Story []Entry `json:"story"`
	// All of it as people read it.
	text string
}

func (b *Broken) Error() string { return b.text }

// Check returns a [*Broken] if the rule does not hold, and another error if that cannot be told.
func (j Journal) Check(check Check) error {
	var verdict struct {
		Broken
		Holds bool   `json:"holds"`
		Text  string `json:"text"`
	}
	err := j.server.callJSON(&verdict, "LOCKWHEEL", "CHECK", check, "STORY")
	if err != nil || verdict.Holds {
		return err
	}
	verdict.text = verdict.Text
	return &verdict.Broken
}

// Entries are what has happened, in time order. The latest thousands are kept.
func (j Journal) Entries() (entries []Entry, err error) {
	return entries, j.server.callJSON(&entries, "LOCKWHEEL", "JOURNAL")
}

// Story is the last of what has happened as people read it: no more than so many entries in time
// order, a line each.
func (j Journal) Story(count int) (string, error) {
	story, err := j.server.Call("LOCKWHEEL", "JOURNAL", "COUNT", count, "TEXT")
	text, _ := story.(string)
	return text, err
}

// Lock is a lock that is held.
type Lock struct {
	Key      string `json:"key"`
	Database int    `json:"database"`
	// Owner is the token, or the field of a hash.
	Owner string `json:"owner"`
	// Count is how often the owner has it.
	Count int64 `json:"count"`
	// Client is the number (CLIENT ID) of who took it, and Name what that client calls itself.
	Client int64  `json:"client"`
	Name   string `json:"name"`
	// SinceMs is when it was taken, in milliseconds since 1970 on the clock that leases end by.
	SinceMs int64 `json:"since_ms"`
	// LeaseMs is what is left of its lease, nil if it has none.
	LeaseMs *int64 `json:"lease_ms"`
	// Waiting are the numbers of those who were refused it and have not got it since.
	Waiting []int64 `json:"waiting"`
}

// Locks are the locks that are held.
func (j Journal) Locks() (locks []Lock, err error) {
	return locks, j.server.callJSON(&locks, "LOCKWHEEL", "LOCKS")
}

// Finding is a mistake that was made, at one key.
type Finding struct {
	// Rule is its name, as "delete-without-check".
	Rule string `json:"rule"`
	Key  string `json:"key"`
	// Sentence is what is wrong, and what to do.
	Sentence string `json:"sentence"`
	// Count is how often it was made.
	Count int64 `json:"count"`
	// Entries show it for the first time.
	Entries []Entry `json:"entries"`
}

// Lint names the mistakes that were made with locks.
func (j Journal) Lint() (findings []Finding, err error) {
	return findings, j.server.callJSON(&findings, "LOCKWHEEL", "LINT")
}

// Clear forgets what has happened. Locks that are held stay known.
func (j Journal) Clear() error {
	_, err := j.server.Call("LOCKWHEEL", "JOURNAL", "CLEAR")
	return err
}

// Entry is something that has happened. Which fields it has depends on Event.
type Entry struct {
	// Seq is its number: they count up from 1.
	Seq int64 `json:"seq"`
	// TimeMs is when, in milliseconds since 1970 on the clock that leases end by.
	TimeMs int64 `json:"time_ms"`
	// Client is the number (CLIENT ID) of who did it, 0 if it happened by itself.
	Client int64  `json:"client"`
	Name   string `json:"name"`
	// Event is "command", or what became of a lock: "acquired", "renewed", "refused", "released",
	// "released-by-stranger", "expired-while-held", "flushed", "waited", "released-too-late",
	// "renewed-too-late".
	Event string   `json:"event"`
	Keys  []string `json:"keys"`

	// Argv, Reply and Script (whether one has called it) are a command's.
	Argv   []string `json:"argv"`
	Reply  string   `json:"reply"`
	Script bool     `json:"script"`

	// Owner is whose lock it is or was.
	Owner string `json:"owner"`
	// Count is how often the owner has it, Left how often still.
	Count int64 `json:"count"`
	Left  int64 `json:"left"`
	// LeaseMs is how long it lasts, nil if it has no lease.
	LeaseMs *int64 `json:"lease_ms"`
	// By is who was refused. Holder is the owner who had it then, or else the number of the client
	// that had taken the lock.
	By     string `json:"by"`
	Holder any    `json:"holder"`
	// WaitedMs is how long after the first refusal it was given, LateMs how long after the loss
	// somebody came.
	WaitedMs int64 `json:"waited_ms"`
	LateMs   int64 `json:"late_ms"`
}

// Judges known histories.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const lock = `{"lock":"l","kind":"lock","reentrant":false,"permits":1,"fair":false}`

var (
	reentrant = strings.Replace(lock, `"reentrant":false`, `"reentrant":true`, 1)
	semaphore = strings.Replace(lock, `"permits":1`, `"permits":2`, 1)
	fair      = strings.Replace(reentrant, `"fair":false`, `"fair":true`, 1)
)

// The histories: one operation in a line, with the interval in which its lease ends, if it starts
// one.
var known = []struct {
	name    string
	rules   string
	history string
	isLegal bool
}{
	{"nothing", lock, "", true},
	{"one after the other", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 a release released
		40..50 b acquire granted end 1040..1050`, true},
	{"double grant", lock, `
		0..10 a acquire granted end 1000..1010
		0..10 b acquire granted end 1000..1010`, false},
	{"double grant to one client", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 a acquire granted end 1020..1030`, false},
	{"grant while the lease runs", lock, `
		0..10 a acquire granted end 1000..1010
		900..999 b acquire granted end 1900..1999`, false},
	{"grant after the end of the lease", lock, `
		0..10 a acquire granted end 1000..1010
		900..1005 b acquire granted end 1900..2005`, true},
	{"grant before the release is sent", lock, `
		0..10 a acquire granted end 1000..1010
		30..40 b acquire granted end 1030..1040
		50..60 a release released`, false},
	{"grant before the release has returned", lock, `
		0..10 a acquire granted end 1000..1010
		20..90 a release released
		30..40 b acquire granted end 1030..1040`, true},
	{"release by another", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 b release released`, false},
	{"release that removes the hold of another", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 b release not-owner
		40..50 c acquire granted end 1040..1050`, false},
	{"second release", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 a release released
		40..50 a release released`, false},
	{"early end", lock, `
		0..10 a acquire granted end 1000..1010
		500..510 a renew not-owner`, false},
	{"end in its interval", lock, `
		0..10 a acquire granted end 1000..1010
		1002..1004 a renew not-owner
		1005..1006 b acquire granted end 2005..2006`, true},
	{"hold after the end was seen", lock, `
		0..10 a acquire granted end 1000..1010
		1002..1003 a renew not-owner
		1005..1006 b acquire refused`, false},
	{"late end", lock, `
		0..10 a acquire granted end 1000..1010
		1011..1012 b acquire refused`, false},
	{"end without a latest time", lock, `
		0..10 a acquire granted end 1000..?
		9011..9012 b acquire refused
		9020..9021 a renew granted end 10020..?`, true},
	{"renewal that delays the end", lock, `
		0..10 a acquire granted end 1000..1010
		900..910 a renew granted end 1900..1910
		1500..1510 b acquire refused
		1920..1930 b acquire granted end 2920..2930`, true},
	{"grant despite a renewal", lock, `
		0..10 a acquire granted end 1000..1010
		900..910 a renew granted end 1900..1910
		1500..1510 b acquire granted end 2500..2510`, false},
	{"stale renewal", lock, `
		0..10 a acquire granted end 1000..1010
		1020..1030 b acquire granted end 2020..2030
		1040..1050 a renew granted end 2040..2050`, false},
	{"renewal of a released lock", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 a release released
		40..50 a renew granted end 1040..1050`, false},
	{"refusal by a free lock", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 a release released
		40..50 b acquire refused`, false},
	{"a lock that is lost after a restart", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 b acquire refused
		200..210 c acquire granted end 1200..1210`, false},
	{"a release that is lost after a restart", lock, `
		0..10 a acquire granted end 1000..1010
		20..30 a release released
		200..210 b acquire refused
		220..230 a renew granted end 1220..1230`, false},
	{"a reply that is later than the end", lock, `
		0..5000 a acquire granted end 1000..6000
		1500..1510 b acquire granted end 2500..2510`, true},
	{"such a grant within the lease of another", lock, `
		0..10 b acquire granted end 9000..9010
		20..5000 a acquire granted end 1020..6000`, false},

	{"acquisition without an answer that has happened", lock, `
		0..100 a acquire unknown end 1000..1100
		200..210 b acquire refused
		300..310 a release released`, true},
	{"acquisition without an answer that has not happened", lock, `
		0..100 a acquire unknown end 1000..1100
		200..210 b acquire granted end 1200..1210
		300..310 a release not-owner`, true},
	{"acquisition without an answer that happens twice", lock, `
		0..100 a acquire unknown end 1000..1100
		200..210 b acquire refused
		300..310 a release released
		400..410 b acquire refused`, false},
	{"acquisition that happens after it was given up", lock, `
		0..? a acquire unknown end 1000..?
		200..210 b acquire granted end 1200..1210
		300..310 b release released
		400..410 b acquire refused`, true},
	{"acquisition that can no longer happen", lock, `
		0..100 a acquire unknown end 1000..1100
		200..210 b acquire granted end 1200..1210
		300..310 b release released
		400..410 b acquire refused`, false},
	{"release without an answer that happens late", lock, `
		0..10 a acquire granted end 1000..1010
		20..500 a release unknown
		300..310 b acquire refused
		400..410 b acquire granted end 1400..1410`, true},
	{"renewal without an answer", lock, `
		0..10 a acquire granted end 1000..1010
		20..500 a renew unknown end 1020..1500
		1200..1210 b acquire refused
		1220..1230 b acquire granted end 2220..2230`, true},
	{"renewal without an answer that shortens no lease", lock, `
		0..10 a acquire granted end 1000..1010
		20..500 a renew unknown end 1020..1500
		900..910 b acquire granted end 1900..1910`, false},

	{"reentrant holds", reentrant, `
		0..10 a acquire granted end 1000..1010 count 1
		20..30 a acquire granted end 1020..1030 count 2
		40..50 a release kept end 1040..1050 count 1
		60..70 b acquire refused
		80..90 a release released count 0
		100..110 b acquire granted end 1100..1110 count 1`, true},
	{"release of all holds at once", reentrant, `
		0..10 a acquire granted end 1000..1010
		20..30 a acquire granted end 1020..1030
		40..50 a release released`, false},
	{"wrong count", reentrant, `
		0..10 a acquire granted end 1000..1010 count 1
		20..30 a acquire granted end 1020..1030 count 3`, false},
	{"refusal of the holder", reentrant, `
		0..10 a acquire granted end 1000..1010
		20..30 a acquire refused`, false},
	{"shared holds", reentrant, `
		0..10 a acquire granted shared end 1000..1010
		20..30 b acquire granted shared end 1020..1030
		40..50 c acquire refused`, true},
	{"a hold beside a shared one", reentrant, `
		0..10 a acquire granted shared end 1000..1010
		20..30 b acquire granted end 1020..1030`, false},
	{"two permits", semaphore, `
		0..10 a acquire granted end 1000..1010
		20..30 b acquire granted end 1020..1030
		40..50 c acquire refused
		60..70 a release released
		80..90 c acquire granted end 1080..1090`, true},
	{"three holds of two permits", semaphore, `
		0..10 a acquire granted end 1000..1010
		20..30 b acquire granted end 1020..1030
		40..50 c acquire granted end 1040..1050`, false},
	{"a free lock is refused in turn", fair, `
		0..10 a acquire granted end 1000..1010 token 7
		20..30 a release released
		40..50 b acquire refused
		60..70 c acquire granted end 1060..1070 token 8`, true},
	{"a renewal of what was acquired without an answer", fair, `
		0..? a acquire unknown end 1000..?
		200..210 b acquire refused
		300..310 a renew granted end 1300..?`, true},
	{"a renewal after a lease without a latest end", fair, `
		0..10 a acquire granted end 1000..?
		1500..1510 b acquire refused
		2000..2010 a renew granted end 3000..?`, true},
	{"a renewal after another has got the lock", fair, `
		0..10 a acquire granted end 1000..?
		1500..1510 b acquire granted end 2500..?
		2000..2010 a renew granted end 3000..?`, false},
	{"a token that does not grow", fair, `
		0..10 a acquire granted end 1000..1010 token 7
		20..30 a release released
		60..70 c acquire granted end 1060..1070 token 7`, false},
}

func TestKnownHistoriesGetKnownVerdicts(t *testing.T) {
	for _, test := range known {
		result, story := parse(t, test.rules, test.history).judge(time.Minute)
		if (result == porcupine.Ok) != test.isLegal || result == porcupine.Unknown {
			t.Errorf("%s: %v\n%s", test.name, result, story)
		}
	}
}

// The histories with which the first judge is tested. Their leases end in time.
func TestBothJudgesAgreeOnKnownHistories(t *testing.T) {
	file, err := os.ReadFile("../../server/compat/src/judge/known.txt")
	if err != nil {
		t.Fatal(err)
	}
	histories := strings.Split(string(file), "\n== ")[1:]
	for _, known := range histories {
		name, rest, _ := strings.Cut(known, "\n")
		rules := lock
		if strings.HasPrefix(rest, "rules: reentrant") {
			rules = reentrant
		}
		locks := map[string]string{}
		for _, line := range strings.Split(rest, "\n") {
			if words := strings.Fields(line); len(words) > 4 && strings.Contains(words[0], "..") {
				locks[words[1]] += operation(t, words) + "\n"
			}
		}
		result := porcupine.Ok
		for _, operations := range locks {
			if verdict, _ := parse(t, rules, operations).judge(time.Minute); verdict != result {
				result = verdict
			}
		}
		// The model knows no time.
		isKnownDifference := name == "the remaining time is wrong"
		isLegal := strings.Contains(rest, "order: yes")
		if (result == porcupine.Ok) != isLegal && !isKnownDifference {
			t.Errorf("%s: %v\n%s", name, result, rest)
		}
	}
	if len(histories) < 50 {
		t.Error(len(histories))
	}
}

// The operation in a line of such a history: times, lock, client, action, lease, answer.
func operation(t *testing.T, words []string) string {
	lease, err := time.ParseDuration(words[4])
	at := 5
	if err != nil {
		at = 4
	}
	text := strings.Join([]string{words[0], words[2], words[3], words[at]}, " ")
	if startsLease := strings.Contains("granted kept unknown", words[at]); startsLease && at == 5 {
		call, returns, _ := strings.Cut(words[0], "..")
		text += fmt.Sprintf(" end %s..%s", later(t, call, lease), later(t, returns, lease))
	}
	for ; at < len(words); at++ {
		if words[at] == "count" {
			text += " count " + words[at+1]
		}
	}
	return text
}

func later(t *testing.T, microseconds string, span time.Duration) string {
	if microseconds == "?" {
		return "?"
	}
	number, err := strconv.ParseInt(microseconds, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(number + span.Microseconds())
}

func TestViolationIsShown(t *testing.T) {
	_, story := parse(t, lock, known[2].history).judge(time.Minute)
	if !strings.Contains(story, "impossible now: 0..10") {
		t.Error(story)
	}
}

func TestStatusIsThatOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	check := func(text string, limit time.Duration, wrong bool, expected int) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if status := judgeFile(path, limit, wrong); status != expected {
			t.Errorf("%d, expected %d: %s", status, expected, text)
		}
	}
	legal, illegal := text(lock, known[1].history), text(lock, known[2].history)
	check(legal, time.Minute, false, 0)
	check(illegal, time.Minute, false, 1)
	check(text(lock, concurrent(40)), time.Millisecond, false, 2)
	check(text(lock, known[0].history), time.Minute, false, 2)
	check(text(lock, "10..0 a release released"), time.Minute, false, 2)
	check(text(lock, "0..10 a release stolen"), time.Minute, false, 2)
	check(strings.TrimPrefix(legal, lock), time.Minute, false, 2)

	named := func(text, name string) string {
		return strings.ReplaceAll(text, `"lock":"l"`, `"lock":"`+name+`"`)
	}
	both := named(legal, "one/l") + named(illegal, "one/m")
	check(both, time.Minute, true, 0)
	check(both+named(legal, "other/l"), time.Minute, true, 1)
	check(text(lock, concurrent(40)), time.Millisecond, true, 1)
	if status := judgeFile(path+"-missing", time.Minute, false); status != 2 {
		t.Error(status)
	}
}

// Holds at once, of which each order must be tried to see that none is possible.
func concurrent(count int) string {
	text := "0..1 a acquire granted end 1000..1010\n"
	for number := range count {
		text += fmt.Sprintf("5..50 c%d release not-owner\n", number)
	}
	return text + "10..20 b acquire granted end 1010..1020"
}

func parse(t *testing.T, rules, operations string) *history {
	histories, err := read(strings.NewReader(text(rules, operations)))
	if err != nil {
		t.Fatal(err)
	}
	return histories[0]
}

// The history as it is written.
func text(rules, operations string) string {
	text := rules + "\n"
	for number, operation := range strings.Split(strings.TrimSpace(operations), "\n") {
		words := strings.Fields(operation)
		if len(words) == 0 {
			continue
		}
		same := fmt.Sprintf(`{"lock":"l","client":%q`, words[1])
		request := fmt.Sprintf(`%s,"kind":%q,"result":%q,%s`, same, words[2], words[3], times(words[0]))
		end := ""
		for at, word := range words {
			switch word {
			case "shared":
				request += `,"shared":true`
			case "token", "count":
				request += fmt.Sprintf(",%q:%s", word, words[at+1])
			case "end":
				request += fmt.Sprintf(`,"lease":%d`, number)
				end = fmt.Sprintf(`%s,"kind":"end","lease":%d,%s}`, same, number, times(words[at+1])) + "\n"
			}
		}
		text += request + "}\n" + end
	}
	return text
}

func times(interval string) string {
	call, returns, _ := strings.Cut(interval, "..")
	if returns == "?" {
		return `"call":` + call
	}
	return fmt.Sprintf(`"call":%s,"return":%s`, call, returns)
}

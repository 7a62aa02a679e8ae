// Keeps the last lines that the server process wrote, for error messages.

package lockwheel

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
)

// Enough to show why a server did not start or has ended.
const logLinesMax = 50

const ready = "The server is now ready to accept connections on port "

// log keeps the last lines of the output of a server, and reads its port from them.
type log struct {
	port chan int

	mutex   sync.Mutex
	lines   []string
	partial []byte
}

func newLog() *log { return &log{port: make(chan int, 1)} }

func (l *log) Write(written []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.partial = append(l.partial, written...)
	for {
		line, rest, whole := bytes.Cut(l.partial, []byte("\n"))
		if !whole {
			return len(written), nil
		}
		l.add(string(line))
		l.partial = rest
	}
}

func (l *log) add(line string) {
	l.lines = append(l.lines, line)
	if len(l.lines) > logLinesMax {
		l.lines = l.lines[1:]
	}
	_, number, found := strings.Cut(line, ready)
	if port, err := strconv.Atoi(strings.TrimSpace(number)); found && err == nil {
		select {
		case l.port <- port:
		default: // A later line with the same text, logged for a client.
		}
	}
}

func (l *log) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return strings.Join(append(l.lines[:len(l.lines):len(l.lines)], string(l.partial)), "\n")
}

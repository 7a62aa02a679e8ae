// A connection to the server: sends commands and decodes RESP2 replies.

package lockwheel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// The limit for a reply. Only a reply that never comes takes this long, for example at a gate that no
// client reaches. The error comes before the limit of the test.
const replyLimit = time.Minute

// ReplyError is an error reply, such as "WRONGTYPE Operation against ...".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Call sends one command on a connection of this package and returns its reply: a string, an int64,
// a []any, or nil. Arguments are strings, []byte, numbers, or values that [fmt.Sprint] formats. An
// error reply is a [ReplyError], for [errors.As].
//
// Fault rules apply to all commands except LOCKWHEEL.
func (s *Server) Call(arguments ...any) (any, error) {
	words := make([]string, len(arguments))
	for index, argument := range arguments {
		if text, ok := argument.([]byte); ok {
			argument = string(text)
		}
		words[index] = fmt.Sprint(argument)
	}
	reply, err := s.call(words)
	if err != nil {
		return nil, fmt.Errorf("lockwheel: %s: %w", strings.Join(words, " "), err)
	}
	return reply, nil
}

func (s *Server) call(words []string) (any, error) {
	for {
		connection, isNew, err := s.connect()
		if err != nil {
			return nil, err
		}
		reply, err := connection.call(words)
		if _, answered := err.(ReplyError); err == nil || answered {
			s.giveBack(connection)
			return reply, err
		}
		_ = connection.socket.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("no reply within %s", replyLimit)
		}
		// Fault rules do not apply to LOCKWHEEL: an idle connection was closed before, by CLIENT KILL
		// or the directive timeout, so the command did not run. Other commands may have run.
		if isNew || words[0] != "LOCKWHEEL" {
			return nil, err
		}
	}
}

// connect returns an unused connection, and whether it is new.
func (s *Server) connect() (*connection, bool, error) {
	if idle := s.takeIdle(); idle != nil {
		return idle, false, nil
	}
	socket, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return nil, true, err
	}
	made := &connection{socket, bufio.NewReader(socket)}
	if s.settings.password != "" {
		if _, err := made.call([]string{"AUTH", s.settings.password}); err != nil {
			_ = socket.Close()
			return nil, true, err
		}
	}
	return made, true, nil
}

// takeIdle returns the idle connection that was used last, or nil.
func (s *Server) takeIdle() *connection {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	last := len(s.idle) - 1
	if last < 0 {
		return nil
	}
	taken := s.idle[last]
	s.idle = s.idle[:last]
	return taken
}

// giveBack keeps a connection for the next command.
func (s *Server) giveBack(used *connection) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.idle = append(s.idle, used)
}

// closeIdle closes the idle connections.
func (s *Server) closeIdle() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, connection := range s.idle {
		_ = connection.socket.Close()
	}
	s.idle = nil
}

// connection runs one command at a time, in RESP2.
type connection struct {
	socket net.Conn
	reader *bufio.Reader
}

func (c *connection) call(words []string) (any, error) {
	if err := c.socket.SetDeadline(time.Now().Add(replyLimit)); err != nil {
		return nil, err
	}
	request := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := c.socket.Write(request); err != nil {
		return nil, err
	}
	reply, err := c.read()
	if failure, ok := reply.(ReplyError); ok {
		return nil, failure
	}
	return reply, err
}

func (c *connection) read() (any, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, text := line[0], strings.TrimSuffix(line[1:], "\r\n")
	switch kind {
	case '+':
		return text, nil
	case '-':
		return ReplyError(text), nil
	case ':':
		return strconv.ParseInt(text, 10, 64)
	}
	length, err := strconv.Atoi(text)
	switch {
	case err != nil || kind != '$' && kind != '*':
		return nil, fmt.Errorf("%q is not a reply", line)
	case length < 0:
		return nil, nil
	case kind == '$':
		bulk := make([]byte, length+len("\r\n"))
		_, err := io.ReadFull(c.reader, bulk)
		return string(bulk[:length]), err
	}
	items := make([]any, length)
	for index := range items {
		if items[index], err = c.read(); err != nil {
			return nil, err
		}
	}
	return items, nil
}

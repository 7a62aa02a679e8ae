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

// More than anything takes that a test asks of its server. A test in which nobody comes to a gate
// says so after this time, before the test's own limit ends it without a word.
const replyLimit = time.Minute

// ReplyError is an error that the server has answered, as "WRONGTYPE Operation against ...".
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// Call sends one command over a connection of the package's own, and returns its reply: a string,
// an int64, a []any, or nil. Arguments are strings, []byte, numbers, or whatever [fmt.Sprint] makes
// of them. An error that the server answers is a [ReplyError], for [errors.As].
//
// Commands other than LOCKWHEEL are subject to faults as anybody's are.
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
			return nil, fmt.Errorf("no answer in %s", replyLimit)
		}
		// Faults do not reach LOCKWHEEL: the connection was closed before, by a CLIENT KILL or the
		// directive timeout, and the command was not run. Of any other command one cannot know.
		if isNew || words[0] != "LOCKWHEEL" {
			return nil, err
		}
	}
}

// connect returns a connection that nobody else uses, and whether it is a new one.
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

// takeIdle returns the connection that was used last, if one is not used now.
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

// forgetIdle closes the connections that nobody uses.
func (s *Server) forgetIdle() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, connection := range s.idle {
		_ = connection.socket.Close()
	}
	s.idle = nil
}

// connection speaks RESP2, one command at a time.
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
	if refusal, ok := reply.(ReplyError); ok {
		return nil, refusal
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
		return nil, fmt.Errorf("%q is no reply", line)
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

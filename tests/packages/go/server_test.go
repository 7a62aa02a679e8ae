// Tests the start, the calls and the end of servers.

package packages

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestTheServerListensOnItsAddress(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	is(t, server.Addr(), fmt.Sprintf("%s:%d", server.Host(), server.Port()))
	is(t, server.URL(), "redis://"+server.Addr())
	options, err := redis.ParseURL(server.URL())
	no(t, err)
	no(t, dialed(t, redis.NewClient(options)).Ping(background).Err())
	is(t, server.Call("PING"), any("PONG"))
}

func TestDirectivesAreThoseOfRedisConf(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t,
		lockwheel.Config("requirepass", "sec/ret@ word"),
		lockwheel.Config("notify-keyspace-events", "Ex"),
		lockwheel.Config("databases", "3"))
	options, err := redis.ParseURL(server.URL())
	no(t, err)
	is(t, options.Password, "sec/ret@ word")
	client := dialed(t, redis.NewClient(options))
	shown, err := client.ConfigGet(background, "databases").Result()
	no(t, err)
	is(t, shown["databases"], "3")
	options.Password = "wrong"
	wrong := dialed(t, redis.NewClient(options))
	holds(t, wrong.Ping(background).Err() != nil, "it takes any password")
}

func TestTheEnvironmentDoesNotSetOptions(t *testing.T) {
	t.Setenv("LOCKWHEEL_REQUIREPASS", "secret")
	t.Setenv("LOCKWHEEL_DATABASES", "3")
	server := lockwheeltest.Start(t)
	no(t, dial(t, server).Ping(background).Err())
	is(t, server.Call("CONFIG", "GET", "databases").([]any)[1], any("16"))
}

func TestCallReturnsTheReply(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	is(t, server.Call("SET", "number", 7), any("OK"))
	is(t, server.Call("INCR", []byte("number")), any(int64(8)))
	is(t, server.Call("GET", "number"), any("8"))
	is(t, server.Call("GET", "missing"), nil)
	is(t, server.Call("SET", "empty", ""), any("OK"))
	is(t, server.Call("GET", "empty"), any(""))
	items := server.Call("EVAL", "return {1, 'two\\r\\n', {}, {err = 'E three'}}", 0).([]any)
	is(t, fmt.Sprintf("%d %q", len(items), items), `4 ['\x01' "two\r\n" [] "E three"]`)
	_, err := server.Server.Call("INCR", "empty")
	is(t, err.Error(), "lockwheel: INCR empty: ERR value is not an integer or out of range")
	var answered lockwheel.ReplyError
	is(t, errors.As(err, &answered), true)
	is(t, answered.Error(), "ERR value is not an integer or out of range")
}

func TestALostConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	client := dial(t, server)
	kill := func() { no(t, client.ClientKillByFilter(background, "TYPE", "normal").Err()) }
	// A LOCKWHEEL command on a closed connection has not run, so it is sent again.
	kill()
	is(t, server.Clock.Rate(), 1)
	// Other commands may have run.
	kill()
	_, err := server.Server.Call("INCR", "number")
	holds(t, err != nil && strings.Contains(err.Error(), "INCR number: "), "the error is: %v", err)
	is(t, server.Call("INCR", "number"), any(int64(1)))
}

func TestAFailedStartReportsTheOutput(t *testing.T) {
	t.Parallel()
	_, err := lockwheel.Start(lockwheel.Config("no-such-directive", "value"))
	line := `>>> '--no-such-directive "value"'`
	for _, text := range []string{"does not start: exit status 1", line} {
		holds(t, err != nil && strings.Contains(err.Error(), text), "the error is: %v", err)
	}
}

func TestStopEndsTheServerAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	server, err := lockwheel.Start()
	no(t, err)
	socket, err := net.Dial("tcp", server.Addr())
	no(t, err)
	no(t, server.Stop())
	is(t, ended(socket), true)
	_, err = net.Dial("tcp", server.Addr())
	holds(t, err != nil, "the port is open")
	no(t, server.Stop())
	_, err = server.Call("PING")
	holds(t, err != nil, "it answers")
}

// ended waits for the end of a connection.
func ended(socket net.Conn) bool {
	_, err := io.Copy(io.Discard, socket)
	// A server that ends with unread input resets the connection.
	var reset *net.OpError
	return err == nil || errors.As(err, &reset)
}

func TestStopReportsAKilledServer(t *testing.T) {
	t.Parallel()
	server, err := lockwheel.Start()
	no(t, err)
	kill(t, number(t, server, "process_id"))
	err = server.Stop()
	holds(t, err != nil && strings.Contains(err.Error(), "signal: killed"), "the error is: %v", err)
	holds(t, strings.Contains(err.Error(), "The server is now ready"), "without its log: %v", err)
}

func TestAServerThatWasShutDownIsStopped(t *testing.T) {
	t.Parallel()
	server, err := lockwheel.Start()
	no(t, err)
	_, err = server.Call("SHUTDOWN", "NOSAVE")
	holds(t, err != nil, "it answers")
	no(t, server.Stop())
}

// number returns a number from INFO.
func number(t *testing.T, server *lockwheel.Server, field string) (value int) {
	t.Helper()
	reply, err := server.Call("INFO")
	no(t, err)
	_, after, _ := strings.Cut(reply.(string), field+":")
	_, err = fmt.Sscanf(after, "%d", &value)
	no(t, err)
	return value
}

func kill(t *testing.T, id int) {
	t.Helper()
	process, err := os.FindProcess(id)
	no(t, err)
	no(t, process.Kill())
}

func init() {
	roles["server"] = func() error {
		server, err := lockwheel.Start()
		if err != nil {
			return err
		}
		fmt.Println(server.Addr())
		select {}
	}
}

func TestTheServerEndsWithAProcessThatIsKilled(t *testing.T) {
	t.Parallel()
	command := process(t, "server")
	output, err := command.StdoutPipe()
	no(t, err)
	no(t, command.Start())
	address, err := bufio.NewReader(output).ReadString('\n')
	no(t, err)
	socket, err := net.Dial("tcp", strings.TrimSpace(address))
	no(t, err)
	no(t, command.Process.Kill())
	is(t, ended(socket), true)
	holds(t, command.Wait() != nil, "it was not killed")
}

func TestServersAreIndependent(t *testing.T) {
	t.Parallel()
	addresses := map[string]bool{}
	for range 5 {
		server := lockwheeltest.Start(t, lockwheel.Frozen())
		addresses[server.Addr()] = true
		is(t, server.Call("SET", "lock", "token", "NX", "PX", 1_000), any("OK"))
		server.Clock.Advance(time.Second)
		is(t, server.Call("GET", "lock"), nil)
	}
	is(t, len(addresses), 5)
}

func TestParallelTestsHaveTheirOwnServers(t *testing.T) {
	for index := range 8 {
		t.Run(fmt.Sprint(index), func(t *testing.T) {
			t.Parallel()
			server := lockwheeltest.Start(t, lockwheel.Frozen())
			got, err := dial(t, server).SetNX(background, "lock", index, time.Minute).Result()
			no(t, err)
			is(t, got, true)
			server.Clock.Advance(time.Duration(index) * time.Second)
			is(t, server.Call("PTTL", "lock"), any(int64(60_000-1_000*index)))
			is(t, len(server.Journal.Locks()), 1)
		})
	}
}

func TestClientsReconnectAfterARestart(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	client := dialed(t, redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: 1}))
	no(t, client.Set(background, "lock", "token", 0).Err())
	address := server.Addr()
	server.Restart()
	is(t, server.Addr(), address)
	is(t, errors.Is(client.Get(background, "lock").Err(), redis.Nil), true)
	is(t, server.Clock.Rate(), 0)
	server.Stop()
	server.Restart()
	no(t, client.Ping(background).Err())
}

func TestASharedServerIsReset(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options []lockwheel.Option
		rate    float64
	}{{nil, 1}, {[]lockwheel.Option{lockwheel.Frozen()}, 0}} {
		shared, err := lockwheel.Start(test.options...)
		no(t, err)
		defer shared.Stop()
		first := lockwheeltest.Use(t, shared)
		first.Call("SETNX", "lock", "token")
		first.Call("CLIENT", "SETNAME", "worker")
		first.Call("CONFIG", "SET", "notify-keyspace-events", "KEA")
		client := dial(t, first)
		script := client.ScriptLoad(background, "return 1").Val()
		first.Clock.Run(50)
		first.Faults.Add(lockwheel.Drop, lockwheel.Requests{})
		first.Faults.Gate(lockwheel.Requests{Command: "get"})

		second := lockwheeltest.Use(t, shared)
		is(t, second.Clock.Rate(), test.rate)
		is(t, len(second.Faults.List())+len(second.Faults.Gates()), 0)
		is(t, second.Call("DBSIZE"), any(int64(0)))
		is(t, second.Call("CONFIG", "GET", "notify-keyspace-events").([]any)[1], any(""))
		is(t, strings.Contains(second.Call("CLIENT", "LIST").(string), "worker"), false)
		is(t, client.ScriptExists(background, script).Val()[0], false)
		second.Journal.AssertNoLockHeld()
		second.Journal.AssertEveryLockHasALease()
		is(t, len(second.Journal.Lint()), 0)
	}
}

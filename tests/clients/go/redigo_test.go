// Tests locks made with redigo.

package clients

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"lockwheel/report"
)

var redigoLibrary = report.Library{Name: "redigo", Module: "github.com/gomodule/redigo"}

// redigoRecipe is SET NX PX with a token, over connections of a pool.
type redigoRecipe struct {
	t    *T
	pool *redis.Pool
}

type redigoLock struct {
	redigoRecipe
	key, token string
	lease      time.Duration
}

var (
	redigoRelease = redis.NewScript(1, `if redis.call("get", KEYS[1]) == ARGV[1] then
		return redis.call("del", KEYS[1]) end return 0`)
	redigoProlong = redis.NewScript(1, `if redis.call("get", KEYS[1]) == ARGV[1] then
		return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`)
)

func (r redigoRecipe) tryLock(key string, lease time.Duration) held {
	connection := r.pool.Get()
	defer connection.Close()
	token := unique("token")
	_, err := redis.String(connection.Do("SET", key, token, "NX", "PX", lease.Milliseconds()))
	if err == redis.ErrNil {
		return nil
	}
	r.t.No(err)
	return redigoLock{r, key, token, lease}
}

func (l redigoLock) unlock() bool { return l.run(redigoRelease, l.key, l.token) }

func (l redigoLock) extend() bool {
	return l.run(redigoProlong, l.key, l.token, l.lease.Milliseconds())
}

func (l redigoLock) run(script *redis.Script, arguments ...any) bool {
	connection := l.pool.Get()
	defer connection.Close()
	done, err := redis.Int(script.Do(connection, arguments...))
	l.t.No(err)
	return done == 1
}

func TestRedigo(t *testing.T) {
	test := func(sentence string, test func(*T, func() contender)) {
		behaviour(t, redigoLibrary, sentence, func(t *T) {
			test(t, func() contender { return redigoRecipe{t, redigoPool(t, mainServer())} })
		})
	}
	test("SET NX PX: of many contenders one holds the lock", func(t *T, make func() contender) {
		excludes(t, unique("redigo"), make)
	})
	test("SET NX PX: a lease ends at its time, not before", func(t *T, make func() contender) {
		expires(t, unique("redigo"), make)
	})
	test("Script: a late release takes nothing from the next holder",
		func(t *T, make func() contender) { refusesLateRelease(t, unique("redigo"), make) })
	test("Script: an extended lease ends at its new time", func(t *T, make func() contender) {
		extends(t, unique("redigo"), make)
	})
}

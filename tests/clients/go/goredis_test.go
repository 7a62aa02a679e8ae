// Tests locks made with go-redis: scripts, transactions, pub/sub, lists, cluster and failover.

package clients

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"lockwheel/report"
)

var goRedisLibrary = report.Library{Name: "go-redis", Module: "github.com/redis/go-redis/v9"}

var (
	release = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then
		return redis.call("del", KEYS[1]) end return 0`)
	prolong = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then
		return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`)
)

// recipe is SetNX with a token, released and extended by scripts that compare it.
type recipe struct {
	t      *T
	client redis.UniversalClient
}

type recipeLock struct {
	recipe
	key, token string
	lease      time.Duration
}

func (r recipe) tryLock(key string, lease time.Duration) held {
	token := unique("token")
	set, err := r.client.SetNX(context.Background(), key, token, lease).Result()
	r.t.No(err)
	if !set {
		return nil
	}
	return recipeLock{r, key, token, lease}
}

func (l recipeLock) unlock() bool {
	deleted, err := release.Run(context.Background(), l.client, []string{l.key}, l.token).Int()
	l.t.No(err)
	return deleted == 1
}

func (l recipeLock) extend() bool {
	leaseMs := l.lease.Milliseconds()
	set, err := prolong.Run(context.Background(), l.client, []string{l.key}, l.token, leaseMs).Int()
	l.t.No(err)
	return set == 1
}

func recipeOver(t *T, protocol int) func() contender {
	return func() contender { return recipe{t, dial(t, mainServer(), protocol)} }
}

func TestGoRedis(t *testing.T) {
	test := func(sentence string, test func(*T)) {
		behaviour(t, goRedisLibrary, sentence, test)
	}
	test("SetNX, RESP2: of many contenders one holds the lock", func(t *T) {
		excludes(t, unique("goredis"), recipeOver(t, 2))
	})
	test("SetNX, RESP3: of many contenders one holds the lock", func(t *T) {
		excludes(t, unique("goredis"), recipeOver(t, 3))
	})
	test("SetNX, RESP2: a lease ends at its time, not before", func(t *T) {
		expires(t, unique("goredis"), recipeOver(t, 2))
	})
	test("SetNX, RESP3: a lease ends at its time, not before", func(t *T) {
		expires(t, unique("goredis"), recipeOver(t, 3))
	})
	test("Script: a late release takes nothing from the next holder", func(t *T) {
		refusesLateRelease(t, unique("goredis"), recipeOver(t, 3))
	})
	test("Script: an extended lease ends at its new time", func(t *T) {
		extends(t, unique("goredis"), recipeOver(t, 3))
	})
	test("Script: one that the server has forgotten is sent again", goRedisSendsAgain)
	test("Watch, TxPipelined: concurrent read-modify-writes lose nothing", goRedisTransacts)
	test("Watch, TxPipelined: a change in between fails with TxFailedErr", goRedisIsOvertaken)
	test("Subscribe: a waiter is woken by the message of the release", goRedisWakesASubscribedWaiter)
	test("TLS: a waiter is woken by the message of the release", goRedisWakesOverTLS)
	test("BLPop: a token in a list lets in one waiter at a time", goRedisBlocks)
	test("a lock outlives the connection it was taken on", goRedisOutlives)
	test("Pipeline: all of 200,000 commands are sent before a reply is read", goRedisPipelines)
	test("ClusterClient: of many contenders one holds the lock", goRedisCluster)
	test("FailoverClient: of many contenders at the master one holds the lock", goRedisFailover)
}

func goRedisPipelines(t *T) {
	const commands = 200_000
	options := redis.Options{Addr: mainServer(), ReadTimeout: time.Minute, WriteTimeout: time.Minute}
	client, key, value := redis.NewClient(&options), unique("goredis"), strings.Repeat("x", 1_000)
	defer client.Close()
	t.No(client.Set(context.Background(), key, value, 0).Err())
	replies, err := client.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
		for range commands {
			pipe.Get(context.Background(), key)
		}
		return nil
	})
	t.No(err)
	t.Is(len(replies) == commands, "%d replies", len(replies))
	for _, reply := range replies {
		t.Is(reply.(*redis.StringCmd).Val() == value, "another reply: %v", reply)
	}
}

func goRedisSendsAgain(t *T) {
	client, key := dial(t, disposable(ofAForgetfulOne)[0], 3), unique("goredis")
	script := redis.NewScript(`return redis.call("incr", KEYS[1])`)
	for expected := 1; expected <= 3; expected++ {
		number, err := script.Run(context.Background(), client, []string{key}).Int()
		t.No(err)
		t.Is(number == expected, "it ran %d times, not %d", number, expected)
		t.No(client.ScriptFlush(context.Background()).Err())
	}
}

func goRedisTransacts(t *T) {
	key := unique("goredis")
	var all sync.WaitGroup
	for range 4 {
		client := dial(t, mainServer(), 3)
		addOne := func(tx *redis.Tx) error {
			number, err := tx.Get(context.Background(), key).Int()
			if err != nil && !errors.Is(err, redis.Nil) {
				return err
			}
			_, err = tx.TxPipelined(context.Background(), func(pipe redis.Pipeliner) error {
				pipe.Set(context.Background(), key, number+1, 0)
				return nil
			})
			return err
		}
		all.Go(func() {
			for range 25 {
				err := error(redis.TxFailedErr)
				for errors.Is(err, redis.TxFailedErr) {
					err = client.Watch(context.Background(), addOne, key)
				}
				t.No(err)
			}
		})
	}
	all.Wait()
	number, err := dial(t, mainServer(), 3).Get(context.Background(), key).Int()
	t.No(err)
	t.Is(number == 100, "%d of 100 additions", number)
}

func goRedisIsOvertaken(t *T) {
	one, other, key := dial(t, mainServer(), 2), dial(t, mainServer(), 3), unique("goredis")
	for _, pair := range [][2]*redis.Client{{one, other}, {other, one}} {
		err := pair[0].Watch(context.Background(), func(tx *redis.Tx) error {
			t.No(pair[1].Set(context.Background(), key, "overtaken", 0).Err())
			_, err := tx.TxPipelined(context.Background(), func(pipe redis.Pipeliner) error {
				pipe.Set(context.Background(), key, "late", 0)
				return nil
			})
			return err
		}, key)
		t.Is(errors.Is(err, redis.TxFailedErr), "the error is: %v", err)
		value, err := one.Get(context.Background(), key).Result()
		t.No(err)
		t.Is(value == "overtaken", "it is %s", value)
	}
}

func goRedisWakesASubscribedWaiter(t *T) {
	wakesASubscribedWaiter(t, func() *redis.Client { return dial(t, mainServer(), 3) })
}

func goRedisWakesOverTLS(t *T) {
	wakesASubscribedWaiter(t, func() *redis.Client { return dialTLS(t) })
}

func wakesASubscribedWaiter(t *T, connect func() *redis.Client) {
	holder, waiter, key := recipe{t, connect()}, recipe{t, connect()}, unique("goredis")
	lock := holder.tryLock(key, long)
	t.Is(lock != nil, "it is free")
	subscriber := connect().Subscribe(context.Background(), key)
	defer subscriber.Close()
	_, err := subscriber.Receive(context.Background())
	t.No(err)
	t.Is(waiter.tryLock(key, long) == nil, "it was granted twice")
	time.AfterFunc(short, func() {
		if !lock.unlock() {
			t.Errorf("it was the holder's")
		}
		holder.client.Publish(context.Background(), key, "free")
	})
	select {
	case message := <-subscriber.Channel():
		t.Is(message.Payload == "free", "the message is %s", message.Payload)
	case <-time.After(generous):
		t.Fatalf("the message never came")
	}
	t.Is(waiter.tryLock(key, long) != nil, "the message came before the release")
}

func goRedisBlocks(t *T) {
	key := unique("goredis")
	first := dial(t, mainServer(), 3)
	t.No(first.RPush(context.Background(), key, "token").Err())
	var inside atomic.Int64
	var all sync.WaitGroup
	for range 6 {
		client := dial(t, mainServer(), 3)
		all.Go(func() {
			for range rounds {
				popped, err := client.BLPop(context.Background(), generous, key).Result()
				t.No(err)
				if inside.Add(1) != 1 || popped[1] != "token" {
					t.Errorf("two hold the token")
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				t.No(client.RPush(context.Background(), key, "token").Err())
			}
		})
	}
	all.Wait()
	left, err := first.LLen(context.Background(), key).Result()
	t.No(err)
	t.Is(left == 1, "%d tokens are left", left)
}

func goRedisOutlives(t *T) {
	one, other, key := dial(t, mainServer(), 3), dial(t, mainServer(), 3), unique("goredis")
	connection := one.Conn()
	id, err := connection.ClientID(context.Background()).Result()
	t.No(err)
	t.No(connection.SetNX(context.Background(), key, "token", long).Err())
	t.No(other.Do(context.Background(), "CLIENT", "KILL", "ID", id).Err())
	t.Is(connection.Ping(context.Background()).Err() != nil, "it is still connected")
	_ = connection.Close()
	t.Is(recipe{t, other}.tryLock(key, long) == nil, "it was lost")
	lock := recipeLock{recipe{t, one}, key, "token", long}
	t.Is(lock.unlock(), "it was lost")
}

func goRedisCluster(t *T) {
	address := optional("REDIS_CLUSTER_URL")
	if address == "" {
		t.Skipf("there is no cluster")
	}
	excludes(t, unique("goredis"), func() contender {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}})
		t.Cleanup(func() { _ = client.Close() })
		return recipe{t, client}
	})
}

func goRedisFailover(t *T) {
	address := optional("REDIS_SENTINEL_URL")
	if address == "" {
		t.Skipf("there is no sentinel")
	}
	excludes(t, unique("goredis"), func() contender {
		client := redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: []string{address},
		})
		t.Cleanup(func() { _ = client.Close() })
		return recipe{t, client}
	})
}

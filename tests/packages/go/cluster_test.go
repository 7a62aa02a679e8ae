// Tests lock objects on a cluster of three nodes.

package packages

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/locks"
)

// cluster is a cluster that ends with its test.
type cluster struct {
	addresses []string
	// processes are those of the nodes, by their addresses.
	processes map[string]*os.Process
	// certificate is a file, if clients use TLS.
	certificate string
}

func startCluster(t *testing.T, usesTLS bool, directives ...string) cluster {
	program, err := lockwheel.Program()
	no(t, err)
	made := cluster{processes: map[string]*os.Process{}}
	command := exec.Command(os.Getenv("CLUSTER"), append([]string{program}, directives...)...)
	command.Stderr = os.Stderr
	if usesTLS {
		made.certificate = filepath.Join(t.TempDir(), "certificate")
		command.Env = append(os.Environ(), "TLS="+made.certificate)
	}
	input, err := command.StdinPipe()
	no(t, err)
	output, err := command.StdoutPipe()
	no(t, err)
	no(t, command.Start())
	t.Cleanup(func() {
		no(t, input.Close())
		_ = command.Wait()
	})
	for lines := bufio.NewScanner(output); len(made.addresses) < 3; {
		holds(t, lines.Scan(), "the cluster does not start")
		var port string
		var id int
		_, err := fmt.Sscan(lines.Text(), &port, &id)
		no(t, err)
		address := net.JoinHostPort("127.0.0.1", port)
		made.addresses = append(made.addresses, address)
		made.processes[address], err = os.FindProcess(id)
		no(t, err)
	}
	return made
}

// client finds the leader, with these options.
func (c cluster) client(t *testing.T, options redis.FailoverOptions) *redis.Client {
	options.MasterName, options.SentinelAddrs = "mymaster", c.addresses
	if c.certificate != "" {
		authorities := x509.NewCertPool()
		pem, err := os.ReadFile(c.certificate)
		no(t, err)
		authorities.AppendCertsFromPEM(pem)
		options.TLSConfig = &tls.Config{RootCAs: authorities, ServerName: "localhost"}
	}
	return dialed(t, redis.NewFailoverClient(&options))
}

// leaderAddress is the address of the node that leads.
func (c cluster) leaderAddress(t *testing.T, client *redis.Client) string {
	question := client.Do(background, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster")
	address, err := question.StringSlice()
	no(t, err)
	return net.JoinHostPort(address[0], address[1])
}

// leader is the process of the node that leads.
func (c cluster) leader(t *testing.T, client *redis.Client) *os.Process {
	return c.processes[c.leaderAddress(t, client)]
}

func TestALockOutlivesTheLeaderOfACluster(t *testing.T) {
	for name, settings := range map[string]redis.FailoverOptions{
		"killed": {},
		// The limits that the README names.
		"stopped": {
			Username: "worker", Password: "word", DB: 3,
			SentinelUsername: "worker", SentinelPassword: "word",
			DialTimeout: time.Second, ReadTimeout: 500 * time.Millisecond, MaxRetries: -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var directives []string
			signal, lease := syscall.SIGKILL, ttl
			if name == "stopped" {
				directives = strings.Fields("--requirepass secret --user worker on >word ~* &* +@all")
				// A renewal waits for a third of it for a server that is stopped.
				signal, lease = syscall.SIGSTOP, 12*time.Second
			}
			cluster := startCluster(t, name == "stopped", directives...)
			client := cluster.client(t, settings)
			options := locks.Options{TTL: lease, RenewEvery: 50 * time.Millisecond}
			lock := locks.New(client, "lock", options)
			no(t, lock.Acquire(background))
			no(t, cluster.leader(t, client).Signal(signal))
			until(t, func() bool { return lock.Renew() == nil || !isHeld(lock) })
			holds(t, isHeld(lock), "it was lost")
			other := locks.New(cluster.client(t, settings), "lock", options)
			isError(t, other.Acquire(background), locks.ErrNotAcquired)
			no(t, lock.Release())
			no(t, other.Acquire(background))
			holds(t, other.Token() > lock.Token(), "tokens do not grow")
			no(t, other.Release())
		})
	}
}

// Shows L17, L18.
func TestALockOfOneAddressIsLostBeforeTheClusterGrantsItAgain(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, false)
	finder := cluster.client(t, redis.FailoverOptions{})
	leader := cluster.leaderAddress(t, finder)
	client := dialed(t, redis.NewClient(&redis.Options{Addr: leader}))
	lock := locks.New(client, "lock", locks.Options{
		TTL: 6 * time.Second, RenewEvery: 50 * time.Millisecond,
	})
	no(t, lock.Acquire(background))
	no(t, cluster.processes[leader].Kill())
	err := lock.Renew()
	holds(t, err != nil && !errors.Is(err, locks.ErrLost), "the error is %v", err)
	other := locks.New(finder, "lock", locks.Options{TTL: ttl, Wait: time.Minute})
	until(t, func() bool { return other.Acquire(background) == nil })
	isError(t, lock.Renew(), locks.ErrLost)
	holds(t, !isHeld(lock) && other.Token() > lock.Token(), "both hold it")
	no(t, other.Release())
}

// A client of a cluster, as in the README.
func newClient(nodes []string) *redis.Client {
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: "mymaster", SentinelAddrs: nodes, // Such as 10.0.0.1:6379.
		DialTimeout: time.Second, ReadTimeout: 500 * time.Millisecond, MaxRetries: -1,
	})
}

func TestTheExampleOfTheReadmeSurvivesAFailover(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, false)
	client := dialed(t, newClient(cluster.addresses))
	lock := locks.New(client, "invoice:7", locks.Options{TTL: 30 * time.Second})
	no(t, lock.Acquire(background))
	no(t, cluster.leader(t, client).Kill())
	until(t, func() bool { return lock.Renew() == nil || !isHeld(lock) })
	holds(t, isHeld(lock), "it was lost")
	no(t, lock.Release())
}

// Shows L17, L18.
func TestABoundLockOfAStoppedClusterIsLostWithItsGrace(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, false)
	lock := locks.New(cluster.client(t, redis.FailoverOptions{}), "lock", locks.Options{
		TTL: ttl, Bound: true, Grace: 2 * time.Second,
	})
	no(t, lock.Acquire(background))
	ctx := lock.Context(background)
	for _, process := range cluster.processes {
		no(t, process.Signal(syscall.SIGSTOP))
	}
	<-ctx.Done()
	isError(t, context.Cause(ctx), locks.ErrLost)
}

func TestAClientOfReplicasIsAClearError(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, false)
	client := cluster.client(t, redis.FailoverOptions{ReplicaOnly: true})
	lock := locks.New(client, "lock", locks.Options{TTL: ttl})
	var err error
	// The client of a node that knows no replica connects to the leader.
	until(t, func() bool {
		err = lock.Acquire(background)
		return err != nil || lock.Release() != nil
	})
	matches(t, err.Error(), "^READONLY .*: a lock needs .* redis.NewClient, .* without ReplicaOnly")
}

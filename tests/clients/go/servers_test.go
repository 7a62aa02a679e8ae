// The servers from environment variables, and the report.

package clients

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"lockwheel/report"
)

// T is the test and its report.
type T = report.T

// behaviour runs a test of a library in parallel with others and reports its outcome.
func behaviour(t *testing.T, of report.Library, sentence string, test func(*T)) {
	report.Behaviour(t, of, sentence, func(t *T) {
		t.Parallel()
		test(t)
	})
}

// A server that a test ends belongs to that test. These are the shares of REDIS_SERVERS.
type slice struct{ from, to int }

var (
	ofRedsyncWithAll        = slice{0, 3}
	ofRedsyncWithOneDead    = slice{3, 6}
	ofRedsyncWithoutQuorum  = slice{6, 9}
	ofRedsyncWithFiveAndTwo = slice{9, 14}
	ofAForgetfulOne         = slice{14, 15}
)

// mainServer returns the server that most tests share.
func mainServer() string { return address(os.Getenv("REDIS_URL")) }

// disposable returns some of the servers that may be ended.
func disposable(which slice) []string {
	var addresses []string
	for _, url := range strings.Split(os.Getenv("REDIS_SERVERS"), ",")[which.from:which.to] {
		addresses = append(addresses, address(url))
	}
	return addresses
}

// optional returns a server that may be missing, or "".
func optional(variable string) string { return address(os.Getenv(variable)) }

func address(url string) string { return strings.TrimPrefix(url, "redis://") }

// dial returns a client of go-redis; protocol is 2 or 3.
func dial(t *T, address string, protocol int) *redis.Client {
	// A dead server is reported at once: a retry takes longer than a short lease.
	client := redis.NewClient(&redis.Options{
		Addr: address, Protocol: protocol, MaxRetries: -1, DialerRetries: 1,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dialTLS returns a client of go-redis at the main server's port for TLS.
func dialTLS(t *T) *redis.Client {
	url := os.Getenv("REDIS_TLS_URL")
	if url == "" {
		t.Skipf("there is no port for TLS")
	}
	options, err := redis.ParseURL(url)
	t.No(err)
	authority, err := os.ReadFile(os.Getenv("REDIS_TLS_CA"))
	t.No(err)
	options.TLSConfig.RootCAs = x509.NewCertPool()
	t.Is(options.TLSConfig.RootCAs.AppendCertsFromPEM(authority), "no certificate")
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// end stops a server and waits until its port is closed.
func end(t *T, address string) {
	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	_ = client.Do(context.Background(), "SHUTDOWN", "NOSAVE").Err()
	for begin := time.Now(); client.Ping(context.Background()).Err() == nil; {
		if time.Since(begin) > generous {
			t.Fatalf("%s does not end", address)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var names atomic.Int64

// unique returns a name that no other test uses, in this run of the suite or an earlier one.
func unique(prefix string) string {
	return fmt.Sprintf("%s:%d:%d", prefix, os.Getpid(), names.Add(1))
}

func TestMain(m *testing.M) {
	if os.Getenv("REDIS_URL") == "" {
		fmt.Fprintln(os.Stderr, "REDIS_URL is not set")
		os.Exit(2)
	}
	os.Exit(m.Run())
}

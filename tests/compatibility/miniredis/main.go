// Command miniredis runs miniredis on the given port. The clock of miniredis is frozen until a test
// moves it; this program moves it along with the system clock, since the suite runs in another
// process.
//
// With `--starts N` it prints how long it takes to start and to stop, N times within this process.
package main

import (
	"log"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if os.Args[1] == "--starts" {
		tellStarts(os.Args[2])
		return
	}
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:" + os.Args[1]); err != nil {
		log.Fatal(err)
	}
	last := time.Now()
	for now := range time.Tick(time.Millisecond) {
		server.FastForward(now.Sub(last))
		last = now
	}
}

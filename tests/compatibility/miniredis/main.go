// Command miniredis listens on the port it is given. Miniredis's own clock stands still until a
// test moves it; here it goes with the machine's, as a server that is tried from outside needs.
//
// With `--starts N` it says how long it takes to start and to end, N times within this process.
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

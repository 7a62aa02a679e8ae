// Measures the start and the end of miniredis within one process.

package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// tellStarts says for each time how many nanoseconds it took to the first reply, and then to the
// end.
func tellStarts(count string) {
	times, err := strconv.Atoi(count)
	if err != nil {
		log.Fatal(err)
	}
	for range times {
		start, stop, err := startAndStop()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("miniredis.Run()", start.Nanoseconds(), stop.Nanoseconds())
	}
}

func startAndStop() (start, stop time.Duration, err error) {
	begin := time.Now()
	server, err := miniredis.Run()
	if err != nil {
		return 0, 0, err
	}
	connection, err := net.Dial("tcp", server.Addr())
	if err != nil {
		return 0, 0, err
	}
	if _, err = connection.Write([]byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return 0, 0, err
	}
	if _, err = io.ReadFull(connection, make([]byte, len("+PONG\r\n"))); err != nil {
		return 0, 0, err
	}
	start = time.Since(begin)
	connection.Close()
	answered := time.Now()
	server.Close()
	return start, time.Since(answered), nil
}

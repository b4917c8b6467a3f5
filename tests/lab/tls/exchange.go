// SPDX-License-Identifier: Apache-2.0

// Several connections over TLS, each with a goroutine at both ends; what calls returned is counted by their local port.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
)

var mutex sync.Mutex
var counted = map[string][]int{}

func done(call string, client int, port string, n int) {
	mutex.Lock()
	defer mutex.Unlock()
	key := fmt.Sprintf("%s %d %s", call, client, port)
	counted[key] = append(counted[key], n)
}

func portOf(address string) string {
	i := len(address) - 1
	for address[i] != ':' {
		i--
	}
	return address[i+1:]
}

func main() {
	folder := os.Args[1]
	pair, err := tls.LoadX509KeyPair(folder+"/certificate", folder+"/key")
	if err != nil {
		panic(err)
	}
	text, _ := os.ReadFile(folder + "/certificate")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		panic(err)
	}
	var all sync.WaitGroup
	for number := 0; number < 4; number++ {
		all.Add(2)
		go func() {
			defer all.Done()
			connection, _ := listener.Accept()
			port := portOf(connection.RemoteAddr().String())
			buffer := make([]byte, 70000)
			for {
				n, err := connection.Read(buffer)
				done("read", 0, port, n)
				if err != nil {
					break
				}
				n, _ = connection.Write(buffer[:n])
				done("write", 0, port, n)
			}
			connection.Close()
		}()
		go func(number int) {
			defer all.Done()
			connection, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "localhost"})
			if err != nil {
				panic(err)
			}
			port := portOf(connection.LocalAddr().String())
			for turn := 0; turn < 10; turn++ {
				size := 1 + (number*7919+turn*1237)%40000
				n, _ := connection.Write(bytes.Repeat([]byte("x"), size))
				done("write", 1, port, n)
				for left := n; left > 0; {
					n, err := connection.Read(make([]byte, 1+turn*3000))
					if err != nil && err != io.EOF {
						panic(err)
					}
					done("read", 1, port, n)
					left -= n
				}
			}
			connection.Close()
		}(number)
	}
	all.Wait()
	port := portOf(listener.Addr().String())
	text, _ = json.Marshal(map[string]any{"pid": os.Getpid(), "port": port, "counted": counted})
	fmt.Println(string(text))
}

package main

import (
	"fmt"
	"io"
	"net"
	"time"
)

// distantURL returns the URL of the database as the servers of a contender see it: with a
// network in between, if the bench has a round trip.
func (b *bench) distantURL(db *postgres) (string, error) {
	if b.roundTrip == 0 {
		return db.url, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", db.port))
			if err != nil {
				client.Close()
				continue
			}
			go b.carry(server, client)
			go b.carry(client, server)
		}
	}()
	return databaseURL(l.Addr().(*net.TCPAddr).Port), nil
}

// carry delivers what it reads half a round trip later, until one side ends, which ends the
// other.
func (b *bench) carry(to io.WriteCloser, from io.ReadCloser) {
	type packet struct {
		due  time.Time
		data []byte
	}
	packets := make(chan packet, 1024)
	go func() {
		defer close(packets)
		for {
			data := make([]byte, 32<<10)
			n, err := from.Read(data)
			if err != nil {
				return
			}
			packets <- packet{time.Now().Add(b.roundTrip / 2), data[:n]}
		}
	}()
	for p := range packets {
		time.Sleep(time.Until(p.due))
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	from.Close()
	to.Close()
	for range packets { // or the reader could block
	}
}

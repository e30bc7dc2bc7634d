package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// measureWebhooks measures creates, about 10,000 a second, without a webhook and with
// two of them, in turns. One receiver responds at once, and the other never does.
func measureWebhooks(b *bench, c *contender) error {
	load := workload{"creates at about 10,000/s, 256 connections", "paced", "sequential", 256}
	if _, err := b.send(c, load, 0, 1); err != nil {
		return err
	}
	seconds := 5 * b.seconds
	for range b.rounds {
		without, err := b.measure(c, load, 0, seconds)
		if err != nil {
			return err
		}
		with, err := b.measureDeliveries(c, load, seconds)
		if err != nil {
			return err
		}
		b.note(c, load.name+", no webhook", without.Rate, "creates/s")
		b.note(c, load.name+", no webhook, p99", without.P99/1000, "ms")
		b.note(c, load.name+", webhooks", with.Rate, "creates/s")
		b.note(c, load.name+", webhooks, p99", with.P99/1000, "ms")
		b.note(c, load.name+", webhooks, of the rate without", with.Rate/without.Rate, "")
		b.note(c, "CPU per create, no webhook", without.CPU, "µs")
		b.note(c, "CPU per create, with one delivery", with.CPU, "µs")
	}
	return nil
}

func (b *bench) measureDeliveries(c *contender, load workload, seconds int) (s sample, err error) {
	fast, hung := newReceiver(false), newReceiver(true)
	defer fast.Close()
	defer hung.Close()
	for _, r := range []*receiver{fast, hung} {
		at, err := r.listen()
		if err != nil {
			return s, err
		}
		text, err := b.plantstore(c, nil, "webhook", "create", "http://"+at+"/hook")
		if err != nil {
			return s, err
		}
		var hook struct{ ID string }
		if err := json.Unmarshal([]byte(text), &hook); err != nil {
			return s, err
		}
		defer b.plantstore(c, nil, "webhook", "delete", hook.ID)
	}
	if s, err = b.measure(c, load, 0, seconds); err != nil {
		return s, err
	}
	received, lag := fast.figures()
	b.note(c, "lag of the fast receiver, largest", lag.Seconds(), "s")
	b.note(c, "events received while they were written", float64(received)/(s.Rate*float64(seconds)), "of them")
	return s, nil
}

// receiver receives the messages of a webhook.
type receiver struct {
	http.Server
	hang bool

	mu       sync.Mutex // guards what follows
	received int
	lag      time.Duration // the largest
}

func newReceiver(hang bool) *receiver {
	r := &receiver{hang: hang}
	r.Handler = http.HandlerFunc(r.receive)
	return r
}

func (r *receiver) listen() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go r.Serve(l)
	return l.Addr().String(), nil
}

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return
	}
	if r.hang {
		<-request.Context().Done()
		return
	}
	w.WriteHeader(http.StatusNoContent)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.received++; r.received%50 != 0 { // decoding takes time
		return
	}
	var message struct{ Timestamp time.Time }
	if err := json.Unmarshal(body, &message); err != nil {
		fmt.Println("receiver:", err)
		return
	}
	r.lag = max(r.lag, time.Since(message.Timestamp))
}

func (r *receiver) figures() (received int, lag time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.received, r.lag
}

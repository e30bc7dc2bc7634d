package main

import "strings"

// measureLimits measures creates with a token without a rate limit and with one whose
// limit is never reached, in turns, on the same server.
func measureLimits(b *bench, c *contender) error {
	text, err := b.plantstore(c, nil, "token", "create", "--url", "http://"+c.addrs[0], "--name", "limited", "--rate", "1000000/s")
	if err != nil {
		return err
	}
	unlimited, limited := c.token, strings.TrimSpace(text)
	defer func() { c.token = unlimited }()
	load := creates(256, "sequential", "empty store")
	if _, err := b.send(c, load, 0, 1); err != nil {
		return err
	}
	seconds := 2 * b.seconds
	for range 3 * b.rounds {
		c.token = unlimited
		without, err := b.measure(c, load, 0, seconds)
		if err != nil {
			return err
		}
		c.token = limited
		with, err := b.measure(c, load, 0, seconds)
		if err != nil {
			return err
		}
		b.note(c, load.name+", no rate limit", without.Rate, "creates/s")
		b.note(c, load.name+", rate limit", with.Rate, "creates/s")
		b.note(c, load.name+", rate limit, of the rate without", with.Rate/without.Rate, "")
		b.note(c, "CPU per create, no rate limit", without.CPU, "µs")
		b.note(c, "CPU per create, rate limit", with.CPU, "µs")
		b.note(c, "CPU per create, rate limit, of that without", with.CPU/without.CPU, "")
	}
	return nil
}

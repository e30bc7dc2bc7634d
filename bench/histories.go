package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// The plants whose histories are measured.
const (
	oftenChanged = -1 // a thousand times, in equal parts after each import
	deletedEarly = -2
	recreated    = -3 // deleted early, and created again at the end
	neverWas     = -4
)

// measureHistories measures the first page of the events of a plant in a log with about that many others.
func measureHistories(plants int) func(b *bench, c *contender) error {
	return func(b *bench, c *contender) error {
		imports := max(1, plants/imported)
		for i := range imports {
			if _, err := b.importMore(c, func(n int64) plant { return newPlant(scatter(uint64(n)), n) }); err != nil {
				return err
			}
			if i == 0 {
				if err := c.change(oftenChanged, "PUT", deletedEarly, "PUT", deletedEarly, "DELETE", recreated, "PUT", recreated, "DELETE"); err != nil {
					return err
				}
			}
			for range 999 / imports {
				if err := c.change(oftenChanged, "PUT"); err != nil {
					return err
				}
			}
		}
		if err := c.change(recreated, "PUT"); err != nil {
			return err
		}
		c.acknowledged += 2
		if c.backlog != nil {
			if _, err := c.drain(); err != nil {
				return err
			}
		}
		usual := scatter(uint64(b.next - 1))
		for _, m := range []struct {
			what string
			id   int64
		}{
			{"changed 1,000 times", oftenChanged}, {"deleted", deletedEarly}, {"recreated", recreated}, {"that never was", neverWas}, {"created once", usual},
		} {
			for _, order := range []string{"", "&order=newest"} {
				path := fmt.Sprintf("/events?id=%d%s", m.id, order)
				if err := b.timePages(c, "history of a plant "+m.what+strings.ReplaceAll(order, "&order=", ", "), slices.Repeat([]string{path}, 100)); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// timePages gets each of these pages.
func (b *bench) timePages(c *contender, name string, paths []string) error {
	var took []time.Duration
	for _, path := range paths {
		began := time.Now()
		if _, err := c.request("GET", path, ""); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.note(c, name+", median", took[len(took)/2].Seconds()*1e3, "ms")
	b.note(c, name+", slowest", took[len(took)-1].Seconds()*1e3, "ms")
	return nil
}

// changes is how many requests change has made: each PUT has another name.
var changes int

// change makes changes, which are pairs of an id and a method.
func (c *contender) change(idsAndMethods ...any) error {
	for i := 0; i < len(idsAndMethods); i += 2 {
		changes++
		body := ""
		if idsAndMethods[i+1] == "PUT" {
			body = fmt.Sprintf(`{"name":"changed %d times"}`, changes)
		}
		if _, err := c.request(fmt.Sprint(idsAndMethods[i+1]), fmt.Sprintf("/plants/%d", idsAndMethods[i]), body); err != nil {
			return err
		}
	}
	return nil
}

// request sends a request, which must succeed, and returns the body of the response.
func (c *contender) request(method, path, body string) (string, error) {
	r, err := http.NewRequest(method, "http://"+c.addrs[0]+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return string(text), err
}

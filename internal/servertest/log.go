package servertest

import (
	"bytes"
	"slices"
	"sync"
)

// Log is a server's log at the debug level, as lines of JSON. It may be used by
// several goroutines.
type Log struct {
	mu      sync.Mutex // guards what follows
	text    bytes.Buffer
	secrets []string
	leak    bool // a secret was logged
}

// Write adds a line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leak = l.leak || l.contains(line)
	return l.text.Write(line)
}

// String returns what has been logged.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Reset forgets what has been logged, so that a long test does not keep all of it.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

func (l *Log) addSecret(secret string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secrets = append(l.secrets, secret)
}

func (l *Log) hasSecret(text []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.contains(text)
}

// contains reports whether the text contains a secret. The caller holds mu.
func (l *Log) contains(text []byte) bool {
	return slices.ContainsFunc(l.secrets, func(secret string) bool { return bytes.Contains(text, []byte(secret)) })
}

func (l *Log) leaked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leak
}

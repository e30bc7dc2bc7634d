package browser

import (
	"fmt"
	"strings"
	"testing"

	"plantstore/internal/testenv"
)

// Every other test relies on it.
func TestErrorsOfThePageAreNoticed(t *testing.T) {
	t.Parallel()
	b := openTab(t, "http://"+startServer(t).Addr+"/")
	for _, c := range []struct{ script, log string }{
		{"setTimeout(() => { throw new Error('not caught'); })", "not caught"},
		{"console.warn('a warning')", "a warning"},
		{"new Image().src = 'http://example.com/picture.png'", "example.com/picture.png"},
	} {
		b.eval(c.script)
		testenv.Eventually(t, func() error {
			b.mu.Lock()
			defer b.mu.Unlock()
			if got := strings.Join(b.logged, "\n"); !strings.Contains(got, c.log) {
				return fmt.Errorf("after %s, the log has %q, want %q", c.script, got, c.log)
			}
			b.expected, b.logged = append(b.expected, c.log), nil
			return nil
		})
	}
}

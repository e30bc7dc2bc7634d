package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// bidi is a connection to a browser that speaks WebDriver BiDi.
type bidi struct {
	conn *websocket.Conn
	done chan struct{} // closed when nothing more is received

	mu      sync.Mutex
	last    int                    // guarded by mu: the id of the last command
	waiting map[int]chan bidiReply // guarded by mu: commands without a response
	events  func(bidiEvent)        // guarded by mu
}

type bidiReply struct {
	Type    string          `json:"type"` // success, error or event
	ID      int             `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   string          `json:"error"`
	Message string          `json:"message"`
	bidiEvent
}

type bidiEvent struct {
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

var errDisconnected = errors.New("the browser has closed the connection")

func dialBidi(ctx context.Context, url string) (*bidi, error) {
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1)
	c := &bidi{conn: conn, done: make(chan struct{}), waiting: map[int]chan bidiReply{}, events: func(bidiEvent) {}}
	go c.receive()
	return c, nil
}

func (c *bidi) close() {
	c.conn.CloseNow()
	<-c.done
}

func (c *bidi) receive() {
	defer close(c.done)
	for {
		var reply bidiReply
		if err := wsjson.Read(context.Background(), c.conn, &reply); err != nil {
			return
		}
		c.mu.Lock()
		events, caller := c.events, c.waiting[reply.ID]
		delete(c.waiting, reply.ID)
		c.mu.Unlock()
		if reply.Type == "event" {
			events(reply.bidiEvent)
		} else if caller != nil {
			caller <- reply
		}
	}
}

// listen has f called with every event, in order, instead of what was called before.
func (c *bidi) listen(f func(bidiEvent)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = f
}

// object is an object of JSON.
type object = map[string]any

// call runs a command and decodes its result, unless result is nil.
func (c *bidi) call(method string, params object, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), pageTimeout)
	defer cancel()
	response := make(chan bidiReply, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = response
	c.mu.Unlock()
	if err := wsjson.Write(ctx, c.conn, object{"id": id, "method": method, "params": params}); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case reply := <-response:
		if reply.Type != "success" {
			return fmt.Errorf("%s: %s: %s", method, reply.Error, reply.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(reply.Result, result)
	case <-c.done:
		return fmt.Errorf("%s: %w", method, errDisconnected)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

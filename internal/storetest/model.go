package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/rules"
)

// Model is a [plantstore.Store] in memory: a mutex, a map and a slice. It is slow and
// deliberately simple, so that reading it shows that it is correct. Other stores are
// compared with it. Nothing in it is durable, but Close keeps its contents, so that it
// can be reopened.
type Model struct {
	mu         sync.Mutex // guards what follows
	plants     map[plantstore.ID]plantstore.StoredPlant
	tokens     []plantstore.Token   // in the order of their creation
	webhooks   []plantstore.Webhook // in the order of their creation
	deliveries map[string][]plantstore.Delivery
	log        []plantstore.Event
	changes    rules.Notifier
}

var _ plantstore.Store = (*Model)(nil)

// NewModel returns an empty model.
func NewModel() *Model {
	return &Model{plants: make(map[plantstore.ID]plantstore.StoredPlant), deliveries: make(map[string][]plantstore.Delivery)}
}

// Apply decides one write after the other under the mutex.
func (m *Model) Apply(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	results := make([]plantstore.Result, len(batch))
	for i, w := range batch {
		results[i] = m.apply(w)
	}
	return results, nil
}

func (m *Model) apply(w plantstore.Write) plantstore.Result {
	var current *plantstore.StoredPlant
	if p, ok := m.plants[w.Plant.ID]; ok {
		current = &p
	}
	result := rules.Decide(&w, current, plantstore.Version{}).Result
	kind := result.EventType()
	switch kind {
	case "":
		return result
	case plantstore.PlantDeleted:
		m.record(plantstore.Event{Type: kind, Plant: current.Plant, By: w.By})
		delete(m.plants, w.Plant.ID)
		return result
	}
	after := plantstore.StoredPlant{Plant: *cmp.Or(result.Patched, &w.Plant)}
	after.Version = m.record(plantstore.Event{Type: kind, Plant: after.Plant, By: w.By})
	after.Created = after.Version.Time
	if current != nil {
		after.Created = current.Created
	}
	m.plants[w.Plant.ID], result.Version = after, after.Version
	return result
}

// record appends an event to the log. It sets its time, version and cursor, and returns the
// version.
func (m *Model) record(e plantstore.Event) plantstore.Version {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if n := len(m.log); n > 0 && now.Before(m.log[n-1].Time) {
		now = m.log[n-1].Time
	}
	at := plantstore.Position{Store: "model", Seq: int64(len(m.log) + 1), Time: now.UnixMicro()}
	e.Cursor, e.Time = at.Cursor(), now
	if e.Token == nil {
		e.Version = plantstore.Version{Time: at.Time, N: at.Seq}
	}
	m.log = append(m.log, e)
	m.changes.Notify()
	return e.Version
}

// at returns the position after that many events.
func (m *Model) at(n int) plantstore.Cursor {
	if n == 0 {
		return plantstore.Position{Store: "model"}.Cursor()
	}
	return m.log[n-1].Cursor
}

// Events returns a page of the events. Only the last page is short.
func (m *Model) Events(ctx context.Context, q plantstore.EventQuery) (page plantstore.EventPage, err error) {
	if err := ctx.Err(); err != nil {
		return page, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var events []plantstore.Event
	if q.Newest {
		page.Next, events, err = m.newest(q)
	} else {
		page.Next, events, err = m.oldest(q)
	}
	if err != nil {
		return plantstore.EventPage{}, err
	}
	page.Start = page.Next
	for _, e := range events {
		if len(page.Events) == q.Limit {
			page.More = true
			break
		}
		page.Next = e.Cursor
		if e.Token != nil && (q.ID != nil || !q.WithTokens) {
			continue
		}
		if q.Contains != "" && (e.Token != nil || !match.New(q.Contains).Match(e.Plant.Name)) {
			continue
		}
		if (q.ID == nil || *q.ID == e.Plant.ID) && (q.Types == nil || slices.Contains(q.Types, e.Type)) && (q.By == "" || q.By == e.By) {
			page.Events = append(page.Events, e)
		}
	}
	return page, nil
}

// find returns how many events there are up to a cursor.
func (m *Model) find(c plantstore.Cursor) (int, error) {
	position, err := c.Position()
	if err != nil {
		return 0, err
	}
	n := int(position.Seq)
	if n > len(m.log) || m.at(n) != c {
		return 0, rules.ErrorGone("it is not one of the model's")
	}
	return n, nil
}

// newest returns where the query starts, and all events from there on, the newest first.
func (m *Model) newest(q plantstore.EventQuery) (plantstore.Cursor, []plantstore.Event, error) {
	n := len(m.log)
	start := m.at(n)
	if q.Before != "" {
		at, err := m.find(q.Before)
		if err != nil {
			return "", nil, err
		}
		if at == 0 {
			return "", nil, rules.ErrorGone("there is no event at it")
		}
		n, start = at-1, q.Before
	}
	events := slices.Clone(m.log[:n])
	slices.Reverse(events)
	return start, events, nil
}

// oldest returns where the query starts, and all events from there on.
func (m *Model) oldest(q plantstore.EventQuery) (plantstore.Cursor, []plantstore.Event, error) {
	n := 0
	switch {
	case q.After == plantstore.LatestCursor:
		n = len(m.log)
	case q.After != "":
		at, err := m.find(q.After)
		if err != nil {
			return "", nil, err
		}
		if n = at; q.Including {
			if n == 0 {
				return "", nil, rules.ErrorGone("there is no event at it")
			}
			n--
		}
	case !q.Since.IsZero():
		for n < len(m.log) && m.log[n].Time.Before(q.Since) {
			n++
		}
		if n == len(m.log) {
			if err := rules.CheckSince(q.Since); err != nil {
				return "", nil, err
			}
		}
	}
	return m.at(n), m.log[n:], nil
}

// Histogram counts the events of each bucket.
func (m *Model) Histogram(ctx context.Context, q plantstore.HistogramQuery) ([]plantstore.Bucket, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return histogram(m.log, q), nil
}

// histogram returns the histogram of events.
func histogram(events []plantstore.Event, q plantstore.HistogramQuery) []plantstore.Bucket {
	bounds := q.Bounds()
	buckets := make([]plantstore.Bucket, q.Buckets)
	for i := range buckets {
		buckets[i].Time = time.UnixMicro(bounds[i]).UTC()
		for _, e := range events {
			if at := e.Time.UnixMicro(); bounds[i] <= at && at < bounds[i+1] {
				buckets[i].Events++
			}
		}
	}
	return buckets
}

// Changed returns a channel that is closed by the next event.
func (m *Model) Changed() <-chan struct{} { return m.changes.Changed() }

// Decide decides each write by itself.
func (m *Model) Decide(ctx context.Context, batch []plantstore.Write) ([]plantstore.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return rules.DecideEach(batch, func(ids []plantstore.ID, found func(plantstore.StoredPlant)) error {
		for _, id := range ids {
			if p, ok := m.plants[id]; ok {
				found(p)
			}
		}
		return nil
	})
}

// Plant returns the plant with that id, or ErrNoPlant.
func (m *Model) Plant(ctx context.Context, id plantstore.ID) (plantstore.StoredPlant, error) {
	if err := ctx.Err(); err != nil {
		return plantstore.StoredPlant{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.plants[id]
	if !ok {
		return plantstore.StoredPlant{}, plantstore.ErrNoPlant
	}
	return p, nil
}

// List returns one page. Only the last page is short, and one of large plants.
func (m *Model) List(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	if err := ctx.Err(); err != nil {
		return plantstore.Page{}, err
	}
	if q.Order.ByName() {
		return m.listByName(q)
	}
	b := rules.NewPageBuilder(q, math.MaxInt)
	for _, p := range m.matching(q, nil) {
		if !b.Add(p) {
			break
		}
	}
	page := b.Page()
	if q.Count {
		q.After = nil
		page.Count = new(count(len(m.matching(q, nil))))
	}
	return page, nil
}

// listByName returns one page.
func (m *Model) listByName(q plantstore.Query) (page plantstore.Page, err error) {
	b, err := rules.NewNamePageBuilder(q)
	if err != nil {
		return page, err
	}
	unsorted, _ := rules.Unsorted(q, false)
	for _, p := range m.matching(unsorted, nil) {
		if !b.Add(p) {
			break
		}
	}
	return b.Page()
}

func namePosition(p plantstore.Plant) plantstore.NamePosition {
	return plantstore.NamePosition{Name: plantstore.SortedName(p.Name), ID: p.ID}
}

// compareNames compares positions in the order of a query by name.
func compareNames(o plantstore.Order, a, b plantstore.NamePosition) int {
	fold := match.New("")
	n := cmp.Or(
		strings.Compare(string(fold.AppendFolded(nil, a.Name)), string(fold.AppendFolded(nil, b.Name))),
		strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID),
	)
	if o.Descending() {
		return -n
	}
	return n
}

// Scan yields the plants that match when the iteration begins.
func (m *Model) Scan(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.StoredPlant, error] {
	return func(yield func(plantstore.StoredPlant, error) bool) {
		plants := m.matching(q, at)
		if q.Order.ByName() {
			first := q
			first.Limit = 1
			if _, err := m.listByName(first); err != nil {
				yield(plantstore.StoredPlant{}, err)
				return
			}
		}
		for _, p := range plants {
			if ctx.Err() != nil {
				break
			}
			if !yield(p, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(plantstore.StoredPlant{}, err)
		}
	}
}

// matching returns all plants that match the query, whatever its limit, in its
// order.
func (m *Model) matching(q plantstore.Query, at *plantstore.Cursor) []plantstore.StoredPlant {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at != nil {
		*at = m.at(len(m.log))
	}
	matches, fold := match.Filter(q), match.New("")
	var found []plantstore.StoredPlant
	folded := map[plantstore.ID]string{} // the names, if they decide the order
	for _, id := range slices.Sorted(maps.Keys(m.plants)) {
		p := m.plants[id]
		if (q.IDs == nil || slices.Contains(q.IDs, p.ID)) && isAfter(&q, p.Plant) && matches(p.Plant) {
			if !q.Details {
				p = plantstore.StoredPlant{Plant: p.Plant}
			}
			found = append(found, p)
			if q.Order.ByName() {
				folded[p.ID] = string(fold.Fold(plantstore.SortedName(p.Name)))
			}
		}
	}
	if q.Order.ByName() {
		slices.SortStableFunc(found, func(a, b plantstore.StoredPlant) int {
			return cmp.Or(strings.Compare(folded[a.ID], folded[b.ID]), strings.Compare(plantstore.SortedName(a.Name), plantstore.SortedName(b.Name)))
		})
	}
	if q.Order.Descending() {
		slices.Reverse(found)
	}
	return found
}

// compare compares plants in an order.
func compare(o plantstore.Order, a, b plantstore.Plant) int {
	switch {
	case o.ByName():
		return compareNames(o, namePosition(a), namePosition(b))
	case o.Descending():
		return cmp.Compare(b.ID, a.ID)
	}
	return cmp.Compare(a.ID, b.ID)
}

// isAfter reports whether the plant comes after the position of a query.
func isAfter(q *plantstore.Query, p plantstore.Plant) bool {
	switch {
	case !q.Order.ByName():
		return q.After == nil || q.CompareIDs(p.ID, *q.After) > 0
	case q.AfterName == "":
		return true
	}
	at, err := q.AfterName.Position()
	if err != nil {
		panic(err)
	}
	return compareNames(q.Order, namePosition(p), at) > 0
}

// Tags counts the plants of each tag.
func (m *Model) Tags(ctx context.Context, q plantstore.TagQuery) (plantstore.TagPage, error) {
	if err := ctx.Err(); err != nil {
		return plantstore.TagPage{}, err
	}
	plants := map[string][]plantstore.ID{}
	for _, p := range m.matching(plantstore.Query{}, nil) {
		if tag, ok := p.Tag.Text(); ok && tag >= q.Start() {
			plants[tag] = append(plants[tag], p.ID)
		}
	}
	b := rules.NewTagPageBuilder(q, math.MaxInt)
	for _, tag := range slices.Sorted(maps.Keys(plants)) {
		if !b.Wants(tag) {
			break
		}
		if b.Matches(tag, 0) {
			b.Add(tag, len(plants[tag]), plants[tag][0], 0)
		} else {
			b.Found(plants[tag][0])
		}
	}
	return b.Page(), nil
}

// CreateToken adds a token. A second one with the same hash is refused.
func (m *Model) CreateToken(ctx context.Context, t plantstore.Token, by plantstore.Actor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(by); err != nil {
		return err
	}
	if m.token(t.Hash) != nil {
		return fmt.Errorf("token %s already exists", t.Hash.ID())
	}
	if len(m.active(t.Created)) >= plantstore.MaxTokens && by.Name != plantstore.Operator {
		return plantstore.ErrTooMany
	}
	m.deleteEnded(t.Created)
	m.tokens = append(m.tokens, stored(t))
	m.recordToken(plantstore.TokenCreated, t, by.Name)
	return nil
}

// check fails if the actor's token has ended. The caller holds the mutex.
func (m *Model) check(by plantstore.Actor) error {
	return by.Check(func(hash plantstore.TokenHash) (plantstore.Token, error) {
		t := m.token(hash)
		if t == nil {
			return plantstore.Token{}, plantstore.ErrNoSuchToken
		}
		return *t, nil
	})
}

// active returns the tokens that are active at that time. The caller holds the mutex.
func (m *Model) active(at time.Time) (tokens []plantstore.Token) {
	for _, t := range m.tokens {
		if t.ActiveAt(seconds(at)) {
			tokens = append(tokens, stored(t))
		}
	}
	return tokens
}

// deleteEnded deletes the tokens that are not to be kept at that time. The caller holds the
// mutex.
func (m *Model) deleteEnded(at time.Time) {
	end := func(t plantstore.Token) time.Time { return cmp.Or(t.Revoked, t.Expires) }
	var ended []plantstore.Token
	for _, t := range m.tokens {
		if !end(t).IsZero() && !end(t).After(seconds(at)) {
			ended = append(ended, t)
		}
	}
	slices.SortStableFunc(ended, func(a, b plantstore.Token) int { return end(a).Compare(end(b)) })
	for i, t := range ended {
		if len(ended)-i > plantstore.MaxEndedTokens || !end(t).After(seconds(at).Add(-plantstore.MaxEndedAge)) {
			m.tokens = slices.DeleteFunc(m.tokens, func(o plantstore.Token) bool { return o.Hash == t.Hash })
		}
	}
}

// CreateFirstToken adds a token if there is none. The last token is never deleted, so then
// there has never been one.
func (m *Model) CreateFirstToken(ctx context.Context, t plantstore.Token) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.tokens) > 0 {
		return false, nil
	}
	m.tokens = append(m.tokens, stored(t))
	m.recordToken(plantstore.TokenCreated, t, plantstore.Operator)
	return true, nil
}

func (m *Model) recordToken(what plantstore.EventType, t plantstore.Token, by string) {
	info := new(stored(t)).Logged()
	m.record(plantstore.Event{Type: what, Token: &info, By: by})
}

// Tokens returns all tokens in the order of their creation.
func (m *Model) Tokens(ctx context.Context) ([]plantstore.Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	tokens := make([]plantstore.Token, len(m.tokens))
	for i, t := range m.tokens {
		tokens[i] = stored(t)
	}
	return tokens, nil
}

// ActiveTokens returns the tokens that are active at that time.
func (m *Model) ActiveTokens(ctx context.Context, at time.Time) ([]plantstore.Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.active(at), nil
}

// Token returns the token with that hash, or ErrNoSuchToken.
func (m *Model) Token(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	if err := ctx.Err(); err != nil {
		return plantstore.Token{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.token(hash)
	if t == nil {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return stored(*t), nil
}

// TokenWithID returns the token with that id.
func (m *Model) TokenWithID(ctx context.Context, id string) (plantstore.Token, error) {
	tokens, err := m.Tokens(ctx)
	if err != nil {
		return plantstore.Token{}, err
	}
	tokens = slices.DeleteFunc(tokens, func(t plantstore.Token) bool { return t.Hash.ID() != id })
	if len(tokens) == 0 {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return slices.MinFunc(tokens, func(a, b plantstore.Token) int { return bytes.Compare(a.Hash[:], b.Hash[:]) }), nil
}

// RevokeToken records the first time at which the token was revoked.
func (m *Model) RevokeToken(ctx context.Context, hash plantstore.TokenHash, at time.Time, by plantstore.Actor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.token(hash)
	if t == nil {
		return plantstore.ErrNoSuchToken
	}
	if !t.Revoked.IsZero() {
		return nil
	}
	if err := m.check(by); err != nil {
		return err
	}
	isOther := func(o plantstore.Token) bool { return o.Hash != hash && o.CreatesTokens(at) }
	if by.Name != plantstore.Operator && t.CreatesTokens(at) && !slices.ContainsFunc(m.tokens, isOther) {
		return plantstore.ErrLastToken
	}
	t.Revoked = seconds(at)
	m.recordToken(plantstore.TokenRevoked, *t, by.Name)
	m.deleteEnded(at)
	return nil
}

// TouchTokens records the latest time at which each token was used.
func (m *Model) TouchTokens(ctx context.Context, used map[plantstore.TokenHash]time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for hash, at := range used {
		t := m.token(hash)
		if t != nil && seconds(at).After(t.LastUsed) {
			t.LastUsed = seconds(at)
		}
	}
	return nil
}

// Webhooks returns all webhooks in the order of their creation.
func (m *Model) Webhooks(ctx context.Context) ([]plantstore.Webhook, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return encoded(m.webhooks), nil
}

// CreateWebhook adds a webhook. A second one with the same id is refused.
func (m *Model) CreateWebhook(ctx context.Context, w plantstore.Webhook, by plantstore.Actor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(by); err != nil {
		return err
	}
	if len(m.webhooks) >= plantstore.MaxWebhooks {
		return plantstore.ErrTooMany
	}
	if m.webhook(w.ID) >= 0 {
		return fmt.Errorf("webhook %s already exists", w.ID)
	}
	m.webhooks = append(m.webhooks, encoded(w))
	return nil
}

// UpdateWebhook changes a webhook under the mutex.
func (m *Model) UpdateWebhook(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (plantstore.Webhook, error) {
	if err := ctx.Err(); err != nil {
		return plantstore.Webhook{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(by); err != nil {
		return plantstore.Webhook{}, err
	}
	i := m.webhook(id)
	if i < 0 {
		return plantstore.Webhook{}, plantstore.ErrNoWebhook
	}
	w := encoded(m.webhooks[i])
	if err := change(&w); err != nil {
		return plantstore.Webhook{}, err
	}
	m.webhooks[i] = encoded(w)
	return w, nil
}

// SaveWebhook is UpdateWebhook.
func (m *Model) SaveWebhook(ctx context.Context, id string, change func(*plantstore.Webhook) error) error {
	_, err := m.UpdateWebhook(ctx, id, plantstore.Actor{}, change)
	return err
}

// DeleteWebhook removes a webhook and its deliveries.
func (m *Model) DeleteWebhook(ctx context.Context, id string, by plantstore.Actor) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.check(by); err != nil {
		return err
	}
	i := m.webhook(id)
	if i < 0 {
		return plantstore.ErrNoWebhook
	}
	m.webhooks = slices.Delete(m.webhooks, i, i+1)
	delete(m.deliveries, id)
	return nil
}

// Backlogs counts the events after the positions of webhooks.
func (m *Model) Backlogs(ctx context.Context, hooks []plantstore.Webhook) ([]plantstore.Backlog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	backlogs := make([]plantstore.Backlog, len(hooks))
	for i := range hooks {
		at, err := hooks[i].Progress.Position.Position()
		if err != nil {
			return nil, err
		}
		backlogs[i] = backlog(m.log[at.Seq:], &hooks[i])
	}
	return backlogs, ctx.Err()
}

// backlog counts the events that a webhook sends.
func backlog(events []plantstore.Event, w *plantstore.Webhook) (b plantstore.Backlog) {
	q := plantstore.EventQuery{Types: w.Types}
	for _, e := range events[:min(len(events), plantstore.MaxPending)] {
		if !q.Matches(&e) {
			continue
		}
		if b.Events == 0 {
			b.Oldest = e.Time
		}
		b.Events++
	}
	return b
}

// Deliveries returns what SaveDeliveries was given last.
func (m *Model) Deliveries(ctx context.Context, id string) ([]plantstore.Delivery, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.webhook(id) < 0 {
		return nil, plantstore.ErrNoWebhook
	}
	return encoded(m.deliveries[id]), nil
}

// SaveDeliveries replaces the deliveries of a webhook that exists.
func (m *Model) SaveDeliveries(ctx context.Context, id string, attempts []plantstore.Delivery) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.webhook(id) >= 0 {
		m.deliveries[id] = encoded(attempts)
	}
	return nil
}

// Stats describes the model.
func (m *Model) Stats(ctx context.Context) (plantstore.Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := int64(len(m.log))
	stats := plantstore.Stats{Plants: int64(len(m.plants)), Events: n, LastSeq: n, SearchIndex: plantstore.SearchIndex{State: plantstore.SearchOff}}
	if n > 0 {
		stats.Oldest = m.log[0].Time
	}
	return stats, ctx.Err()
}

// Ready returns nil unless the context has ended.
func (m *Model) Ready(ctx context.Context) error { return ctx.Err() }

// Close does nothing.
func (m *Model) Close() error { return nil }

// token returns a pointer to the token with that hash, or nil. The caller holds the
// mutex.
func (m *Model) token(hash plantstore.TokenHash) *plantstore.Token {
	for i := range m.tokens {
		if m.tokens[i].Hash == hash {
			return &m.tokens[i]
		}
	}
	return nil
}

// webhook returns the index of the webhook with that id, or -1. The caller holds the
// mutex.
func (m *Model) webhook(id string) int {
	return slices.IndexFunc(m.webhooks, func(w plantstore.Webhook) bool { return w.ID == id })
}

// encoded returns a value as a store returns it: after it was encoded in JSON, sharing
// no memory with the caller's.
func encoded[T any](value T) (copied T) {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &copied)
	}
	if err != nil {
		panic(err)
	}
	return copied
}

// stored returns the token as a store returns it: with times in whole seconds of UTC,
// sharing no memory with the caller's.
func stored(t plantstore.Token) plantstore.Token {
	t.Scopes = slices.Clone(t.Scopes)
	t.Created = seconds(t.Created)
	t.Expires = seconds(t.Expires)
	t.Revoked = seconds(t.Revoked)
	t.LastUsed = seconds(t.LastUsed)
	return t
}

func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

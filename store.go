package plantstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Store stores plants, tokens and webhooks, and the log of changes. All methods are safe
// for concurrent use. Code that needs one part takes that part.
//
// # Durability
//
// When Apply returns without an error, every write that it does not report as refused MUST
// survive a crash of the process, a crash of the operating system and a power failure. A
// store MUST NOT report success for anything that is not on disk yet. CreateToken,
// CreateFirstToken, RevokeToken, CreateWebhook, UpdateWebhook and DeleteWebhook are durable
// in the same way. Changes by TouchTokens, SaveWebhook and SaveDeliveries MUST survive a
// crash of the process, but need not survive the other failures.
//
// # Order and visibility
//
// Once Apply has returned, its writes are visible to every read that starts later, on every
// replica that shares the store. The writes that it applies become visible together or not
// at all. Within a batch, writes take effect in order: a create after a delete of the same
// id succeeds.
//
// # The log of changes For every write that changed something, Apply MUST record one event
// in the same transaction, and none for any other write. CreateToken, CreateFirstToken and
// RevokeToken MUST do the same for every token that they create or revoke. The events of a
// store are in one order, which MUST be without gaps and MUST never change. The events of
// one plant MUST be in the order in which its writes took effect. Once a cursor has been
// given out, by any replica, no event that commits later may come before it. Old events may
// be trimmed, the oldest first; a cursor before them MUST then be refused with ErrGone, and
// so MUST a cursor from another store, or from another history of the same one.
//
// # Actors
//
// Methods that take an [Actor] MUST call its Check in the transaction that makes the
// change, and MUST change nothing if it fails: they return its error. Once RevokeToken has
// returned, no change by the revoked token may be made, on any replica. If there is nothing
// to change, they need not check.
type Store interface {
	Plants
	Events
	Tokens
	Webhooks

	// Stats describes the store. It MUST be cheap however large the store is. The
	// number of plants and of events MUST be exact.
	Stats(ctx context.Context) (Stats, error)

	// Ready returns nil if the store can serve reads and writes now, and ErrDamaged
	// if it cannot until someone repairs what it has on disk.
	Ready(ctx context.Context) error

	// Close releases the store. No other method may be called during or after it.
	Close() error
}

// Plants is the part of a [Store] that holds the plants.
//
// # Failure
//
// A write can be refused on its own (Result.Err), which MUST NOT prevent the rest of
// its batch from being applied. An error returned by Apply is about the whole batch:
//
//   - ErrUntrusted: the store no longer knows what is durable. It MUST refuse
//     everything from then on, and the process stops.
//   - ErrDamaged: part of the store cannot be read. Nothing in the batch was
//     applied, and later batches are refused too.
//   - ErrRetry: the batch was not applied, or its outcome is unknown. The caller
//     applies the same batch again, which MUST leave the store as if the batch had
//     been applied once, with one exception: a Create without a condition MAY be
//     decided again. If another caller has deleted its plant in between, it creates
//     the plant once more, with another event; if another caller has replaced it, the
//     Create is refused. Its own caller has no result until then, so the two writes
//     are concurrent.
//   - any other error: nothing in the batch was applied.
type Plants interface {
	// Apply applies the batch in one transaction and returns a result for each write, in
	// the same order. If the plants that the first writes replace, patch or delete are large,
	// it MAY apply only those writes: the caller applies the rest. It does not retain the
	// slice.
	Apply(ctx context.Context, batch []Write) ([]Result, error)

	// Decide returns what Apply would return for each write if it were the only one, and
	// changes nothing. The batch is small enough for a brief read.
	Decide(ctx context.Context, batch []Write) ([]Result, error)

	// Plant returns the plant with this id, or ErrNoPlant.
	Plant(ctx context.Context, id ID) (StoredPlant, error)

	// List returns one page of the plants that match the query, in its order. It
	// does a bounded amount of work, so a page may have fewer plants than the limit
	// and still not be the last. If there are more than MaxSorted plants to examine in
	// an order by name, or they are too large, List and Scan fail with ErrTooManyToSort.
	List(ctx context.Context, q Query) (Page, error)

	// Scan yields every plant that matches the query, in its order, from one
	// snapshot: it neither sees nor blocks concurrent writes. It ignores the query's
	// limit. After an error it yields nothing more.
	//
	// If at is not nil, it is set to the snapshot's position in the log of changes
	// before the first plant is yielded.
	Scan(ctx context.Context, q Query, at *Cursor) iter.Seq2[StoredPlant, error]

	// Tags returns one page of the tags in use, in the order of their bytes, each with its
	// number of plants, counted up to MaxTagPlants. A page is from one snapshot. It does a
	// bounded amount of work however many plants there are, so a page may have fewer tags
	// than the limit and still not be the last.
	Tags(ctx context.Context, q TagQuery) (TagPage, error)
}

// Events is the part of a [Store] that holds the log of changes.
type Events interface {
	// Events returns a page of the log of changes, in the order of the query. It does a
	// bounded amount of work, so a page may have fewer events than the limit and still not
	// be the last.
	Events(ctx context.Context, q EventQuery) (EventPage, error)

	// Histogram returns the buckets of the query, each with its number of events that are
	// kept, whatever they are about, from one snapshot. It MUST NOT count them one by one:
	// it does little work for each bucket, however many events there are.
	Histogram(ctx context.Context, q HistogramQuery) ([]Bucket, error)

	// Changed returns a channel that is closed when events may have been added since
	// the call.
	Changed() <-chan struct{}
}

// Tokens is the part of a [Store] that holds the tokens.
type Tokens interface {
	// CreateToken adds a token, or returns ErrTooMany if MaxTokens are active at the time
	// of its creation and by, who creates it, is not named Operator. CreateToken and
	// RevokeToken MUST delete the ended tokens that are not to be kept (see MaxEndedTokens)
	// as of the time that they are given, in the order in which they ended. They may leave
	// some to later calls, so that none takes long, and MUST do so while that time, or the
	// clock by which the tokens ended, cannot be believed. They MUST NOT delete the last
	// token, nor the one that they create or revoke.
	CreateToken(ctx context.Context, t Token, by Actor) error

	// CreateFirstToken adds a token for Operator if the store has never had one, and
	// reports whether it did. If several replicas call it concurrently, one of them
	// succeeds.
	CreateFirstToken(ctx context.Context, t Token) (bool, error)

	// Tokens returns all tokens, including revoked and expired ones, in order of
	// creation.
	Tokens(ctx context.Context) ([]Token, error)

	// ActiveTokens returns the tokens that are active at this time, in any order. Servers
	// call it every second, so it should not read ended tokens.
	ActiveTokens(ctx context.Context, at time.Time) ([]Token, error)

	// Token returns the token with this hash, or ErrNoSuchToken.
	Token(ctx context.Context, hash TokenHash) (Token, error)

	// TokenWithID returns the token with this [TokenHash.ID], the one with the least hash
	// if there are several, or ErrNoSuchToken. It reads no other tokens.
	TokenWithID(ctx context.Context, id string) (Token, error)

	// RevokeToken permanently revokes a token, or returns ErrNoSuchToken. Revoking it again
	// changes nothing. It returns ErrLastToken if this is the only token valid at that time
	// that has ScopeTokensWrite, unless by, who revokes it, is named Operator. Concurrent
	// calls MUST NOT revoke the last two.
	RevokeToken(ctx context.Context, hash TokenHash, at time.Time, by Actor) error

	// TouchTokens records when tokens were last used. It ignores unknown tokens,
	// and times before the recorded one.
	TouchTokens(ctx context.Context, used map[TokenHash]time.Time) error
}

// Webhooks is the part of a [Store] that holds the webhooks. It delivers nothing.
type Webhooks interface {
	// Webhooks returns all webhooks, in order of creation.
	Webhooks(ctx context.Context) ([]Webhook, error)

	// CreateWebhook adds a webhook, or returns ErrTooMany if there are MaxWebhooks.
	CreateWebhook(ctx context.Context, w Webhook, by Actor) error

	// UpdateWebhook changes a webhook in one transaction and returns it, or returns
	// ErrNoWebhook. If change returns an error, the webhook stays as it was, and
	// UpdateWebhook returns that error. It may call change more than once. The
	// transaction is durable.
	UpdateWebhook(ctx context.Context, id string, by Actor, change func(*Webhook) error) (Webhook, error)

	// SaveWebhook is like UpdateWebhook by the zero Actor, but the change need not survive a
	// crash of the operating system or a power failure. It is cheap.
	SaveWebhook(ctx context.Context, id string, change func(*Webhook) error) error

	// Backlogs returns the backlog of each of the webhooks. If a position is before the
	// events that are kept, it counts from the oldest.
	Backlogs(ctx context.Context, hooks []Webhook) ([]Backlog, error)

	// DeleteWebhook removes a webhook and its deliveries, or returns ErrNoWebhook.
	DeleteWebhook(ctx context.Context, id string, by Actor) error

	// Deliveries returns the last attempts of a webhook, the newest first, or
	// ErrNoWebhook.
	Deliveries(ctx context.Context, id string) ([]Delivery, error)

	// SaveDeliveries replaces these attempts. It ignores a webhook that does not exist, and
	// is as cheap as SaveWebhook.
	SaveDeliveries(ctx context.Context, id string, attempts []Delivery) error
}

// Op is the operation of a [Write].
type Op uint8

// The operations.
const (
	// Create adds a plant. If the same plant exists already, it succeeds and
	// changes nothing; if another plant has the id, it is refused with ErrIDTaken.
	Create Op = iota
	// Replace adds a plant, or replaces the one with the same id.
	Replace
	// Delete removes the plant with the id of Write.Plant, or is refused with
	// ErrNoPlant. It ignores the rest of Write.Plant.
	Delete
	// Patch changes the name or the tag of the plant with the id of Write.Plant, or is
	// refused with ErrNoPlant.
	Patch
)

// Write is one change to a [Store].
type Write struct {
	Op Op
	// KeepName and KeepTag say that a Patch leaves the plant its name, or its tag,
	// whatever that of Plant is.
	KeepName, KeepTag bool
	// MaxText is how many bytes of text a Patch may leave, if not 0: what would leave more is
	// refused with ErrTooLarge.
	MaxText uint32
	Plant   Plant
	// If is the precondition of the write, or nil. If it does not hold, the write
	// is refused with ErrPrecondition.
	If *Condition
	// By is the public id of the token that makes the write. It is recorded in the log
	// of changes.
	By string
}

// PlantPatch says how a plant changes. What is nil stays as it is.
type PlantPatch struct {
	Name *string
	Tag  *Tag // an absent tag removes the plant's
}

// Write returns the Patch of the plant with that id.
func (p PlantPatch) Write(id ID) Write {
	w := Write{Op: Patch, Plant: Plant{ID: id}, KeepName: p.Name == nil, KeepTag: p.Tag == nil}
	if p.Name != nil {
		w.Plant.Name = *p.Name
	}
	if p.Tag != nil {
		w.Plant.Tag = *p.Tag
	}
	return w
}

// Condition is a precondition on the plant that exists under an id.
type Condition struct {
	// Match, if not empty, requires the plant to have one of these ETags. AnyETag
	// requires it to exist.
	Match []ETag
	// NoneMatch requires the plant to have none of these ETags. AnyETag requires
	// that there is no plant.
	NoneMatch []ETag
}

// Holds reports whether the condition holds for the current plant, which is nil if
// there is none. A nil condition always holds.
func (c *Condition) Holds(current *StoredPlant) bool {
	return c.MatchHolds(current) && (c == nil || !matches(c.NoneMatch, current))
}

// MatchHolds is like Holds, for Match alone.
func (c *Condition) MatchHolds(current *StoredPlant) bool {
	return c == nil || len(c.Match) == 0 || matches(c.Match, current)
}

func matches(tags []ETag, current *StoredPlant) bool {
	if current == nil || len(tags) == 0 {
		return false
	}
	return slices.Contains(tags, AnyETag) || slices.Contains(tags, current.ETag())
}

// Outcome is the effect of a write.
type Outcome uint8

// The outcomes.
const (
	Created   Outcome = iota // there was no plant with this id
	Unchanged                // the same plant already existed
	Replaced                 // a different plant existed
	Deleted
)

// Result is the result of one write: its Outcome, or why it was refused.
type Result struct {
	Outcome Outcome
	Err     error
	// Patched is the plant after a Patch that was not refused, and nil after any other write.
	Patched *Plant
	// Version is that of the plant after the write. It is meaningless if there is none, or if
	// the write was refused.
	Version Version
}

// EventType returns the type of the event that the log of changes records, or "" if nothing
// has changed.
func (r Result) EventType() EventType {
	switch {
	case r.Err != nil || r.Outcome == Unchanged:
		return ""
	case r.Outcome == Created:
		return PlantCreated
	case r.Outcome == Replaced:
		return PlantReplaced
	}
	return PlantDeleted
}

// MaxIDs is how many ids a [Query] may have.
const MaxIDs = 1000

// MaxTags is how many tags a [Query] may have.
const MaxTags = 32

// Query selects plants.
type Query struct {
	// IDs, if not nil, selects plants with these ids: MaxIDs at most, in ascending order, and
	// different ones. Everything else that selects plants, and Order, must then be absent.
	IDs []ID
	// Order is the order of the plants. If it is empty, it is ByID.
	Order Order
	// After, if not nil, selects plants that come after this id in an order by id.
	After *ID
	// AfterName, if not empty, selects plants that come after this position in an order by name.
	AfterName NameCursor
	// Tag, Tags, TagPrefix and Untagged select plants by their tags. A plant is selected if
	// one of them does, or if all of them are absent: Tag, if present, and Tags, MaxTags at
	// most, select plants with exactly these tags, TagPrefix, if not nil, those with a tag
	// that begins with it, and Untagged those without a tag.
	Tag       Tag
	Tags      []string
	TagPrefix *string
	Untagged  bool
	// Contains, if not empty, selects plants whose name contains every word of this
	// text, in any order, ignoring case and diacritics.
	Contains string
	// Limit is the maximum number of plants on a page. It must be at least 1. A page
	// of large plants has fewer.
	Limit int
	// Details asks for the versions and times of the plants, which are otherwise zero.
	Details bool
	// Count asks for the number of plants that match, whatever After is. A Scan ignores it.
	Count bool
}

// MaxCount is the number up to which the plants that match a query are counted.
const MaxCount = 10_000

// Count is a number of plants: Plants, which is at most [MaxCount], or more than that if More is
// set.
type Count struct {
	Plants int
	More   bool
}

// Order is an order of plants.
type Order string

// The orders. By name means by the folded name, in which case and diacritics are ignored as in
// searches, then by the name, both in the order of their bytes, and then by the id. The
// descending order is the exact reverse.
const (
	ByID             Order = "id"
	ByIDDescending   Order = "-id"
	ByName           Order = "name"
	ByNameDescending Order = "-name"
)

// Orders lists every order.
func Orders() []Order { return []Order{ByID, ByIDDescending, ByName, ByNameDescending} }

// ByName reports whether the order is one by name.
func (o Order) ByName() bool { return strings.TrimPrefix(string(o), "-") == string(ByName) }

// MaxSorted is how many plants a query by name may examine: those that its tags select, or else
// all of the store.
const MaxSorted = 1_000_000

// maxSortedName is how many bytes of a name an order by name looks at.
const maxSortedName = 1 << 10

// SortedName returns the beginning of a name that an order by name looks at.
func SortedName(name string) string {
	if len(name) <= maxSortedName {
		return name
	}
	end := maxSortedName
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end]
}

// NamePosition is the position of a plant in an order by name.
type NamePosition struct {
	Name string // its [SortedName]
	ID   ID
}

// NameCursor is a position in an order by name. It is opaque, and has at most 1400 letters, digits,
// '-', '_' and '.'.
type NameCursor string

// Cursor returns the cursor of a position.
func (p NamePosition) Cursor() NameCursor {
	return NameCursor(p.ID.String() + "." + base64.RawURLEncoding.EncodeToString([]byte(p.Name)))
}

// Position returns the position of a cursor, or ErrParameter if the cursor is malformed.
func (c NameCursor) Position() (NamePosition, error) {
	id, name, _ := strings.Cut(string(c), ".")
	n, badID := strconv.ParseInt(id, 10, 64)
	text, badName := base64.RawURLEncoding.DecodeString(name)
	p := NamePosition{Name: string(text), ID: ID(n)}
	if badID != nil || badName != nil || len(text) > maxSortedName || !utf8.Valid(text) || p.Cursor() != c {
		return NamePosition{}, Errorf(ErrParameter, "malformed cursor %q", Shorten(string(c)))
	}
	return p, nil
}

// Descending reports whether the order is the reverse of another.
func (o Order) Descending() bool { return strings.HasPrefix(string(o), "-") }

// First returns the first id that comes after After, and whether there is one.
func (q *Query) First() (ID, bool) {
	switch {
	case q.After != nil:
		return q.Following(*q.After)
	case q.Order.Descending():
		return math.MaxInt64, true
	}
	return math.MinInt64, true
}

// Following returns the id that comes after another one, and whether there is one.
func (q *Query) Following(id ID) (ID, bool) {
	if q.Order.Descending() {
		return id - 1, id > math.MinInt64
	}
	return id + 1, id < math.MaxInt64
}

// CompareIDs returns a negative number if a comes before b, and a positive one if it comes after.
func (q *Query) CompareIDs(a, b ID) int {
	if q.Order.Descending() {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// Filtered reports whether the query selects plants by their contents, so that answering it
// may examine many more than it selects.
func (q *Query) Filtered() bool { return q.ByTag() || q.Contains != "" }

// ByTag reports whether the query selects plants by their tags.
func (q *Query) ByTag() bool {
	return q.Tag.present || len(q.Tags) > 0 || q.TagPrefix != nil || q.Untagged
}

// ExactTags returns the tags of Tag and Tags in the order of their bytes, each once.
func (q *Query) ExactTags() []string {
	tags := slices.Clone(q.Tags)
	if q.Tag.present {
		tags = append(tags, q.Tag.text)
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// SelectsTag reports whether the query selects plants with this tag, or without one if it is
// absent.
func (q *Query) SelectsTag(t Tag) bool {
	switch {
	case !q.ByTag():
		return true
	case !t.present:
		return q.Untagged
	}
	return t == q.Tag || slices.Contains(q.Tags, t.text) || q.TagPrefix != nil && strings.HasPrefix(t.text, *q.TagPrefix)
}

// Page is one page of plants.
type Page struct {
	Plants []StoredPlant
	// Next is the After of the next page, and NextName its AfterName in an order by name. Both
	// are absent if this page is the last.
	Next     *ID
	NextName NameCursor
	// Count is how many plants match the query. It is nil if the query does not ask for it, or
	// if that would be too much work.
	Count *Count
}

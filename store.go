package plantstore

import (
	"context"
	"iter"
	"slices"
	"time"
)

// Store keeps plants and tokens. All methods may be called from any number of
// goroutines at once.
//
// # Durability
//
// When Apply returns without an error, every write that it does not report as
// refused MUST survive a crash of the process, of the operating system and of
// the power. A store MUST NOT answer from a cache that the disk does not yet
// hold. What CreateToken, CreateFirstToken and RevokeToken report as done is
// durable in the same way; TouchTokens need not be.
//
// # Order and visibility
//
// A write that Apply has reported is seen by every read that begins afterwards,
// on every replica that shares the store. A batch becomes visible at once or not
// at all. Within a batch, writes take effect in their order: a create after a
// delete of the same id succeeds.
//
// # Failure
//
// A refused write (Result.Err) is refused alone and MUST NOT keep the others of
// its batch from being applied. An error of Apply itself concerns the whole batch:
//
//   - ErrUntrusted: the store no longer knows what is durable. It MUST refuse
//     everything from then on; the process stops.
//   - ErrRetry: not applied, or nobody knows. The caller applies the same batch
//     again. Doing so MUST leave the store as if it had been applied once.
//   - any other: nothing of the batch has been applied.
type Store interface {
	// Apply applies the batch in one transaction and returns a result for each
	// write, in their order. It does not keep the slice.
	Apply(ctx context.Context, batch []Write) ([]Result, error)

	// Plant returns the plant with that id, or ErrNoPlant.
	Plant(ctx context.Context, id ID) (Plant, error)

	// List returns one page of the plants that match the query, in ascending
	// order of id. It does a bounded amount of work, so a page may hold fewer
	// plants than the limit and still have a next one.
	List(ctx context.Context, q Query) (Page, error)

	// Scan yields every plant that matches the query, in ascending order of id,
	// from one snapshot: no write that happens meanwhile is seen, and none waits.
	// The query's limit does not count. After an error it yields nothing more.
	Scan(ctx context.Context, q Query) iter.Seq2[Plant, error]

	// CreateToken adds a token.
	CreateToken(ctx context.Context, t Token) error

	// CreateFirstToken adds a token if the store has never had any, and reports
	// whether it did. Of several replicas that ask at once, one does.
	CreateFirstToken(ctx context.Context, t Token) (bool, error)

	// Tokens returns all tokens, the revoked and the expired too, in the order
	// of their creation.
	Tokens(ctx context.Context) ([]Token, error)

	// Token returns the token with that hash, or ErrNoSuchToken.
	Token(ctx context.Context, hash TokenHash) (Token, error)

	// RevokeToken revokes a token for good, or returns ErrNoSuchToken. Revoking
	// it again keeps the first time.
	RevokeToken(ctx context.Context, hash TokenHash, at time.Time) error

	// TouchTokens records when tokens were last used. An earlier time than the
	// one known is ignored, and so is an unknown token.
	TouchTokens(ctx context.Context, used map[TokenHash]time.Time) error

	// Ready returns nil if the store can serve reads and writes now.
	Ready(ctx context.Context) error

	// Close releases the store. Nothing may be called during or after it.
	Close() error
}

// Op is what a [Write] does.
type Op uint8

// The operations.
const (
	// Create adds a plant. The same plant under the same id is a success that
	// changes nothing; another one is refused with ErrIDTaken.
	Create Op = iota
	// Replace adds a plant or takes the place of the one with its id.
	Replace
	// Delete removes the plant with the id, or is refused with ErrNoPlant. Only
	// the id of Write.Plant counts.
	Delete
)

// Write is one change that a [Store] is asked for.
type Write struct {
	Op    Op
	Plant Plant
	// If, where it is set, must hold or the write is refused with
	// ErrPrecondition.
	If *Condition
}

// Condition says which plant must stand under the id for a write to happen.
type Condition struct {
	// Match, where it is not empty, lists what is allowed to be there: one of
	// these, or with AnyETag any plant at all.
	Match []ETag
	// NoneMatch lists what must not be there: none of these, or with AnyETag no
	// plant at all.
	NoneMatch []ETag
}

// Holds reports whether the condition holds where current is there, or nothing
// if current is nil. A nil condition always holds.
func (c *Condition) Holds(current *Plant) bool {
	return c.MatchHolds(current) && !c.excludes(current)
}

// MatchHolds reports whether the Match of the condition holds.
func (c *Condition) MatchHolds(current *Plant) bool {
	return c == nil || len(c.Match) == 0 || matches(c.Match, current)
}

func (c *Condition) excludes(current *Plant) bool {
	return c != nil && matches(c.NoneMatch, current)
}

func matches(tags []ETag, current *Plant) bool {
	if current == nil || len(tags) == 0 {
		return false
	}
	return slices.Contains(tags, AnyETag) || slices.Contains(tags, current.ETag())
}

// Outcome says what an accepted write did.
type Outcome uint8

// The outcomes.
const (
	Created   Outcome = iota // there was none, now there is
	Unchanged                // it was there already, exactly so
	Replaced                 // another one was there
	Deleted                  // it is gone
)

// Result is what became of one write: an Outcome, or the reason it was refused.
type Result struct {
	Outcome Outcome
	Err     error
}

// Decide returns what the write does where current is under its id, or nothing
// if current is nil. It is the whole semantics of a write, so that every store
// has the same.
//
// A Replace that asks for what is already there succeeds even where its Match no
// longer holds: it is taken for the repetition of one that was applied.
func (w *Write) Decide(current *Plant) Result {
	switch {
	case w.Op == Delete && current == nil:
		return Result{Err: ErrNoPlant}
	case w.Op != Delete && current != nil && *current == w.Plant && !w.If.excludes(current):
		return Result{Outcome: Unchanged}
	case !w.If.Holds(current):
		return Result{Err: ErrPrecondition}
	case w.Op == Delete:
		return Result{Outcome: Deleted}
	case current == nil:
		return Result{Outcome: Created}
	case w.Op == Create:
		return Result{Err: ErrIDTaken}
	}
	return Result{Outcome: Replaced}
}

// Query says which plants are wanted.
type Query struct {
	// After, where it is set, asks for greater ids only.
	After *ID
	// Tag, where it is present, asks for plants with exactly this tag.
	Tag Tag
	// Contains, where it is not empty, asks for plants whose name contains this
	// text, ignoring case.
	Contains string
	// Limit is the most that a page may hold, 1 at least.
	Limit int
}

// Filter returns a function that reports whether a plant has the tag and the name
// that the query asks for. The function is not safe for concurrent use.
func (q Query) Filter() func(Plant) bool {
	name := NewMatcher(q.Contains)
	return func(p Plant) bool {
		return (!q.Tag.present || p.Tag == q.Tag) && name.Match(p.Name)
	}
}

// Page is one page of plants.
type Page struct {
	Plants []Plant
	// Next, where it is set, is the After of the next page. Where it is nil this
	// page is the last.
	Next *ID
}

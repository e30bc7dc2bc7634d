// Package plantstore holds the words of the domain: [Plant], [Write], [Query],
// [Token], the errors, and the [Store] that keeps them.
//
// # A tour of the code, bottom up
//
// This package needs the standard library only, and everything else may import
// it. Above it stand packages that never import each other:
//
//   - internal/sqlite keeps the store in one file, internal/postgres in a database
//     that many servers share, and internal/storetest is the suite that every store
//     passes, with the in-memory model it is held against.
//   - internal/commit gathers the writes that wait into one transaction.
//   - internal/auth knows who is calling.
//   - internal/http1 serves connections: plain requests by itself, all others by
//     net/http.
//   - client calls a server over HTTP.
//
// internal/server speaks HTTP over those, internal/console is its web page, and
// cmd/plantstore wires everything together, and only there.
//
// # One create, top to bottom
//
// A request enters at server.Server.ServeHTTP, finds its row in routes.go, is
// authorised by auth.Guard, decoded by wire.go, queued by commit.Writer.Write,
// made durable by sqlite.Store.Apply, and answered on the way back.
package plantstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// ID is the identification number of a plant. The caller chooses it; every
// int64 is one, zero and the negative ones too.
type ID int64

// Plant is one plant of the store. Plants are compared with ==.
type Plant struct {
	ID ID
	// Name is any Unicode text, the empty one and U+0000 included. It is valid
	// UTF-8.
	Name string
	Tag  Tag
}

// Tag says the type of a plant. The zero Tag is an absent one, which is not the
// same as [NewTag]("").
type Tag struct {
	text    string
	present bool
}

// NewTag returns a tag that is present and reads text, which is valid UTF-8.
func NewTag(text string) Tag { return Tag{text: text, present: true} }

// Text returns what the tag reads, and whether there is one.
func (t Tag) Text() (string, bool) { return t.text, t.present }

// ETag is the entity tag of a plant's representation: equal plants have equal
// ETags, and plants that differ in name or tag have different ones. It holds the
// quotes that HTTP writes around it.
type ETag string

// AnyETag stands for every plant that exists, as * does in If-Match.
const AnyETag ETag = "*"

// ETag returns the entity tag of the plant's name and tag. It is derived from
// them alone, so that every replica gives the same one and nothing is stored.
func (p Plant) ETag() ETag {
	h := sha256.New()
	var head [9]byte
	binary.BigEndian.PutUint64(head[:], uint64(len(p.Name)))
	if p.Tag.present {
		head[8] = 1
	}
	h.Write(head[:])
	h.Write([]byte(p.Name))
	h.Write([]byte(p.Tag.text))
	sum := h.Sum(nil)
	return ETag(`"` + base64.RawURLEncoding.EncodeToString(sum[:15]) + `"`)
}

package storetest

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"plantstore"
)

// texts are short texts that a store could mishandle: by truncating them at U+0000, by
// interpreting them as a number, a pattern or a command, or by a collation that
// considers different texts equal. No two are the same.
var texts = []string{
	"", " ", "\x00", "\x00\x00", "a", "A", "a ", " a", "a\x00", "a\x00b", "a\x00c", "\x00a",
	"\x01\x02\x1f\x7f", "\t", "\n", "\r\n", "line one\nline two\r\n", `"`, `""`, `'`, `''`, "`", `\`, `\\`, `\0`, `\x00`, `\u0000`,
	`say "fern" and 'rose'`, `'); DROP TABLE plants; --`, "$1", "?1", ":name", "{}", "[1,2]", "%", "_", "%%", "*",
	"NULL", "null", "true", "0", "00", "0.0", "1", "1.0", "1e0", "9223372036854775808", "NaN", "2026-01-01",
	"caf\u00e9", "cafe\u0301", "stra\u00dfe", "strasse", "STRASSE", "\u0131", "\u0130", "i", "I",
	"\U0001f335", "\U0001f335\ufe0f", "\U0001f469\U0001f3fd\u200d\U0001f33e", "\U0001f1e8\U0001f1ed",
	"\u05e9\u05d5\u05e9\u05e0\u05d4", "\u0635\u0628\u0627\u0631", "\u202etfel ot thgir\u202c", "\u4ed9\u4eba\u638c",
	"\ufeff", "\ufeffa", "\u00a0", "\u200b", "\u2028", "\u0085", "\ufffd", "\ufffe", "\uffff", "\ue000", "\U0010ffff",
}

// longTexts returns texts of 32 KiB and more: one that compression does not shorten,
// so that it fits into no index page, one of characters with four bytes each, and one
// with a run of U+0000. They end in an ASCII character.
func longTexts() []string {
	const size = 32 << 10
	var b strings.Builder
	sum := sha256.Sum256([]byte("plantstore"))
	for b.Len() < size {
		b.WriteString(hex.EncodeToString(sum[:]))
		sum = sha256.Sum256(sum[:])
	}
	return []string{
		b.String(),
		strings.Repeat("\U0001f335", size/4) + ".",
		"a" + strings.Repeat("\x00", size) + "b",
	}
}

// variety is a plant without its id. A nil variety stands for no plant.
type variety struct {
	name string
	tag  plantstore.Tag
}

func (v *variety) at(id plantstore.ID) plantstore.Plant {
	return plantstore.Plant{ID: id, Name: v.name, Tag: v.tag}
}

// steps creates the variety under the id.
func (v *variety) steps(id plantstore.ID) []step {
	if v == nil {
		return nil
	}
	return []step{{create(v.at(id)), created}}
}

// etag stands for the ETag of the plant that a write finds, if it is this variety, and
// otherwise for one that no plant has. A condition with it is for [apply].
func (v *variety) etag() plantstore.ETag { return plantstore.ETag(fmt.Sprint("variety ", *v)) }

// withVersions returns the write with the ETags that its varieties stand for.
func withVersions(t tb, s plantstore.Store, w plantstore.Write) plantstore.Write {
	t.Helper()
	if w.If == nil {
		return w
	}
	resolve := func(tags []plantstore.ETag) (resolved []plantstore.ETag) {
		for _, tag := range tags {
			if strings.HasPrefix(string(tag), "variety ") {
				found, err := s.Plant(t.Context(), w.Plant.ID)
				if err != nil && !errors.Is(err, plantstore.ErrNoPlant) {
					t.Fatal(err)
				}
				if err == nil && (&variety{found.Name, found.Tag}).etag() == tag {
					tag = found.ETag()
				} else {
					tag = `"0fwnp5zj5ka0"`
				}
			}
			resolved = append(resolved, tag)
		}
		return resolved
	}
	w.If = &plantstore.Condition{Match: resolve(w.If.Match), NoneMatch: resolve(w.If.NoneMatch)}
	return w
}

// writeCase is one write, with the plant before and after it.
type writeCase struct {
	given *variety
	op    plantstore.Op
	plant *variety
	cond  *plantstore.Condition
	want  plantstore.Result
	left  *variety
}

// ofVersion reports whether the case is about the version of a plant.
func (c *writeCase) ofVersion() bool {
	return c.cond != nil && slices.ContainsFunc(slices.Concat(c.cond.Match, c.cond.NoneMatch), func(tag plantstore.ETag) bool { return tag != plantstore.AnyETag })
}

func (c *writeCase) step(id plantstore.ID) step {
	return step{plantstore.Write{Op: c.op, Plant: c.plant.at(id), If: c.cond}, c.want}
}

// writeCases lists what each operation does, for each plant that it can find and each
// form of condition.
func writeCases() []writeCase {
	const c, r, d = plantstore.Create, plantstore.Replace, plantstore.Delete
	var (
		fern  = &variety{name: "fern"}
		empty = &variety{name: "fern", tag: plantstore.NewTag("")}
		rose  = &variety{name: "rose"}
		moss  = &variety{name: "moss", tag: plantstore.NewTag("wild")}
		none  *variety

		always = &plantstore.Condition{}
		exists = ifMatch(plantstore.AnyETag)
		absent = ifNoneMatch(plantstore.AnyETag)
		ifFern = ifMatch(fern.etag())
		ifBoth = ifMatch(moss.etag(), fern.etag())
		noFern = ifNoneMatch(fern.etag())
		noBoth = ifNoneMatch(moss.etag(), fern.etag())
		narrow = &plantstore.Condition{
			Match:     []plantstore.ETag{plantstore.AnyETag},
			NoneMatch: []plantstore.ETag{fern.etag()},
		}
	)
	return []writeCase{
		{none, c, fern, nil, created, fern},
		{fern, c, fern, nil, unchanged, fern},
		{fern, c, rose, nil, idTaken, fern},
		{fern, c, empty, nil, idTaken, fern},
		{empty, c, fern, nil, idTaken, empty},
		{empty, c, empty, nil, unchanged, empty},
		{none, r, fern, nil, created, fern},
		{fern, r, fern, nil, unchanged, fern},
		{fern, r, rose, nil, replaced, rose},
		{fern, r, empty, nil, replaced, empty},
		{empty, r, fern, nil, replaced, fern},
		{moss, r, rose, nil, replaced, rose},
		{none, d, fern, nil, noPlant, none},
		{fern, d, fern, nil, deleted, none},
		{fern, d, moss, nil, deleted, none},

		{none, c, fern, always, created, fern},
		{fern, c, rose, always, idTaken, fern},
		{fern, r, rose, always, replaced, rose},
		{fern, d, fern, always, deleted, none},

		{none, c, fern, exists, unmet, none},
		{fern, c, fern, exists, unchanged, fern},
		{fern, c, rose, exists, idTaken, fern},
		{none, r, fern, exists, unmet, none},
		{fern, r, fern, exists, unchanged, fern},
		{fern, r, rose, exists, replaced, rose},
		{none, d, fern, exists, noPlant, none},
		{fern, d, fern, exists, deleted, none},

		{none, c, fern, absent, created, fern},
		{fern, c, fern, absent, unmet, fern},
		{fern, c, rose, absent, unmet, fern},
		{none, r, fern, absent, created, fern},
		{fern, r, fern, absent, unmet, fern},
		{fern, r, rose, absent, unmet, fern},
		{none, d, fern, absent, noPlant, none},
		{fern, d, fern, absent, unmet, fern},

		{none, c, rose, ifFern, unmet, none},
		{fern, c, rose, ifFern, idTaken, fern},
		{moss, c, rose, ifFern, unmet, moss},
		{rose, c, rose, ifFern, unmet, rose},
		{none, r, rose, ifFern, unmet, none},
		{fern, r, rose, ifFern, replaced, rose},
		{fern, r, fern, ifFern, unchanged, fern},
		{empty, r, rose, ifFern, unmet, empty},
		{moss, r, rose, ifFern, unmet, moss},
		{rose, r, rose, ifFern, unmet, rose},
		{none, d, fern, ifFern, noPlant, none},
		{fern, d, fern, ifFern, deleted, none},
		{fern, d, moss, ifFern, deleted, none},
		{moss, d, fern, ifFern, unmet, moss},

		{fern, r, rose, ifBoth, replaced, rose},
		{moss, r, rose, ifBoth, replaced, rose},
		{empty, r, rose, ifBoth, unmet, empty},
		{moss, d, moss, ifBoth, deleted, none},

		{none, r, rose, noFern, created, rose},
		{fern, r, rose, noFern, unmet, fern},
		{fern, r, fern, noFern, unmet, fern},
		{empty, r, rose, noFern, replaced, rose},
		{moss, r, rose, noFern, replaced, rose},
		{fern, d, fern, noFern, unmet, fern},
		{moss, d, fern, noFern, deleted, none},
		{moss, c, rose, noFern, idTaken, moss},
		{moss, r, rose, noBoth, unmet, moss},
		{rose, r, moss, noBoth, replaced, moss},

		{none, r, rose, narrow, unmet, none},
		{fern, r, rose, narrow, unmet, fern},
		{moss, r, rose, narrow, replaced, rose},
		{moss, d, moss, narrow, deleted, none},
	}
}

func ifMatch(tags ...plantstore.ETag) *plantstore.Condition {
	return &plantstore.Condition{Match: tags}
}

func ifNoneMatch(tags ...plantstore.ETag) *plantstore.Condition {
	return &plantstore.Condition{NoneMatch: tags}
}

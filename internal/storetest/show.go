package storetest

import (
	"fmt"
	"strings"

	"plantstore"
)

// difference says where got first differs from want. It returns "" if they are equal.
func difference(got, want []plantstore.Plant) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("%d plants instead of %d, %s is missing", len(got), len(want), showPlant(want[i]))
		case i >= len(want):
			return fmt.Sprintf("%d plants instead of %d, %s is unexpected", len(got), len(want), showPlant(got[i]))
		case got[i] != want[i]:
			return fmt.Sprintf("plant %d is %s, want %s", i+1, showPlant(got[i]), showPlant(want[i]))
		}
	}
	return ""
}

func showPlant(p plantstore.Plant) string {
	return fmt.Sprintf("{%d %s %s}", p.ID, showText(p.Name), showTag(p.Tag))
}

func showTag(t plantstore.Tag) string {
	text, present := t.Text()
	if !present {
		return "untagged"
	}
	return showText(text)
}

func showText(s string) string {
	const maxBytes = 60
	if len(s) > maxBytes {
		return fmt.Sprintf("%+q… (%d bytes)", s[:maxBytes], len(s))
	}
	return fmt.Sprintf("%+q", s)
}

func showWrite(w plantstore.Write) string {
	op := [...]string{plantstore.Create: "create", plantstore.Replace: "replace", plantstore.Delete: "delete", plantstore.Patch: "patch"}[w.Op]
	if w.Op == plantstore.Patch {
		op += fmt.Sprintf(" (name stays: %t, tag stays: %t, at most %d bytes)", w.KeepName, w.KeepTag, w.MaxText)
	}
	if w.If == nil {
		return op + " " + showPlant(w.Plant)
	}
	return fmt.Sprintf("%s %s if match %s, none match %s", op, showPlant(w.Plant), w.If.Match, w.If.NoneMatch)
}

func showResult(r plantstore.Result) string {
	if r.Err != nil {
		return fmt.Sprintf("refusal (%v)", r.Err)
	}
	if r.Patched != nil {
		return fmt.Sprintf("outcome %d, %s", r.Outcome, showPlant(*r.Patched))
	}
	switch r.Outcome {
	case plantstore.Created:
		return "created"
	case plantstore.Unchanged:
		return "unchanged"
	case plantstore.Replaced:
		return "replaced"
	case plantstore.Deleted:
		return "deleted"
	}
	return fmt.Sprintf("outcome %d", r.Outcome)
}

func showQuery(q plantstore.Query) string {
	var parts []string
	if q.IDs != nil {
		parts = append(parts, fmt.Sprintf("ids %d", q.IDs))
	}
	if q.After != nil {
		parts = append(parts, fmt.Sprintf("after %d", *q.After))
	}
	if _, present := q.Tag.Text(); present {
		parts = append(parts, "tag "+showTag(q.Tag))
	}
	for _, tag := range q.Tags {
		parts = append(parts, "or tag "+showText(tag))
	}
	if q.TagPrefix != nil {
		parts = append(parts, "or tag from "+showText(*q.TagPrefix))
	}
	if q.Untagged {
		parts = append(parts, "or untagged")
	}
	if q.AfterName != "" {
		parts = append(parts, "after "+showText(string(q.AfterName)))
	}
	if q.Order != "" {
		parts = append(parts, "in order of "+string(q.Order))
	}
	if q.Contains != "" {
		parts = append(parts, "contains "+showText(q.Contains))
	}
	return strings.Join(append(parts, fmt.Sprintf("limit %d", q.Limit)), ", ")
}

func showTagQuery(q plantstore.TagQuery) string {
	return fmt.Sprintf("prefix %s, contains %s, from %s, limit %d", showText(q.Prefix), showText(q.Contains), showText(q.From), q.Limit)
}

// showTags formats the first of the tags.
func showTags(tags []plantstore.TagCount) string {
	const most = 10
	text := fmt.Sprintf("%d tags", len(tags))
	for _, t := range tags[:min(len(tags), most)] {
		text += fmt.Sprintf(" %s: %d (more: %t)", showText(t.Tag), t.Plants, t.More)
	}
	return text
}

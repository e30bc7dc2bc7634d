package cli

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"plantstore"
)

// WantFiles stands for the names of files among completions.
const WantFiles = ":files"

// Complete returns completions for the last word, or WantFiles.
func Complete(node *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	words, current := words[:len(words)-1], words[len(words)-1]
	var flag *kong.Flag // whose value the current word is
	given := 0          // positional arguments
	for _, word := range words {
		switch f := FlagNamed(node, word); {
		case flag != nil:
			flag = nil
		case f != nil && !f.IsBool():
			flag = f
		case strings.HasPrefix(word, "-"):
		default:
			at := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
			if at < 0 {
				given++
			} else {
				node = node.Children[at]
			}
		}
	}
	if flag != nil {
		return completeValue(flag.Value, flag.PlaceHolder, "", current)
	}
	if name, value, ok := strings.Cut(current, "="); ok {
		if f := FlagNamed(node, name); f != nil {
			return completeValue(f.Value, f.PlaceHolder, name+"=", value)
		}
		return nil
	}
	var all []string
	switch {
	case strings.HasPrefix(current, "-"):
		for _, f := range node.Flags {
			all = append(all, "--"+f.Name)
		}
		all = append(all, "--help")
	case given < len(node.Positional):
		p := node.Positional[given]
		return completeValue(p, p.Tag.PlaceHolder, "", current)
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				all = append(all, child.Name)
			}
		}
	}
	return slices.DeleteFunc(all, func(word string) bool { return !strings.HasPrefix(word, current) })
}

// FlagNamed returns the flag of a command, or nil if the word is not one or there is no command.
func FlagNamed(node *kong.Node, word string) *kong.Flag {
	if node == nil {
		return nil
	}
	for _, f := range node.Flags {
		if word == "--"+f.Name {
			return f
		}
	}
	return nil
}

// completeValue returns the values that a flag or argument may have, each after lead. Of
// a list that is separated by commas, it completes the last item.
func completeValue(v *kong.Value, placeholder, lead, current string) (all []string) {
	var values []string
	switch {
	case v.Name == "scopes":
		for _, scope := range plantstore.AllScopes() {
			values = append(values, string(scope))
		}
	case v.Name == "type":
		for _, t := range plantstore.EventTypes() {
			values = append(values, string(t))
		}
	case v.Enum != "":
		values = v.EnumSlice()
	case strings.Contains(placeholder, "FILE"), strings.Contains(placeholder, "DIR"):
		return []string{WantFiles}
	}
	if v.Enum == "" {
		at := strings.LastIndexByte(current, ',') + 1
		lead, current = lead+current[:at], current[at:]
	}
	for _, value := range values {
		if value != "" && strings.HasPrefix(value, current) {
			all = append(all, lead+value)
		}
	}
	return all
}

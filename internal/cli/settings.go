package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/alecthomas/kong"
)

// Settings are those of a configuration file, by the name of their flag, as they would be on the
// command line.
type Settings map[string]string

// Resolve returns the setting of a flag, unless the environment sets it. It is a
// [kong.ResolverFunc].
func (c Settings) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	text, ok := c[flag.Name]
	if !ok || slices.ContainsFunc(flag.Envs, IsSet) {
		return nil, nil
	}
	return text, nil
}

// IsSet reports whether the environment has a variable, which may be empty.
func IsSet(variable string) bool {
	_, ok := os.LookupEnv(variable)
	return ok
}

// ReadSettings reads a configuration file, if there is one, and checks every setting in it. known
// are the flags that it may set.
func ReadSettings(file string, known []*kong.Flag) (Settings, error) {
	if file == "" {
		return nil, nil
	}
	var values map[string]any
	meta, err := toml.DecodeFile(file, &values)
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		return nil, fmt.Errorf("%s, line %d: %s", file, syntax.Position.Line, syntax.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	settings := Settings{}
	for _, path := range meta.Keys() {
		key := path[0]
		at := slices.IndexFunc(known, func(f *kong.Flag) bool { return f.Name == key })
		if at < 0 {
			names := make([]string, len(known))
			for i, f := range known {
				names[i] = f.Name
			}
			return nil, fmt.Errorf("%s: unknown key %q, did you mean %q?", file, key,
				nearest(strings.ReplaceAll(strings.ToLower(key), "_", "-"), names))
		}
		text, err := settingText(values[key], known[at].Tag.Sep)
		if err == nil {
			err = checkSetting(known[at], text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, key, err)
		}
		settings[key] = text
	}
	return settings, nil
}

// settingText returns a value as the command line would have it. sep separates the items of
// a list.
func settingText(value any, sep rune) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case int64, bool:
		return fmt.Sprint(v), nil
	case []any:
		var items []string
		for _, item := range v {
			text, ok := item.(string)
			if !ok || strings.ContainsRune(text, sep) {
				return "", fmt.Errorf("must be a list of strings without %q", sep)
			}
			items = append(items, text)
		}
		return strings.Join(items, string(sep)), nil
	}
	return "", errors.New("must be a string, an integer, true, false or a list of strings")
}

// checkSetting parses a setting as its flag does.
func checkSetting(flag *kong.Flag, text string) error {
	target := reflect.New(flag.Target.Type()).Elem()
	scan := kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: text})
	if err := flag.Mapper.Decode(&kong.DecodeContext{Value: flag.Value, Scan: scan}, target); err != nil {
		return err
	}
	if flag.Enum != "" && !slices.Contains(flag.EnumSlice(), text) {
		return fmt.Errorf("must be one of %s, got %q", strings.Join(flag.EnumSlice(), ", "), text)
	}
	return nil
}

// testVariables are those of Plantstore's own tests, which run the command.
var testVariables = regexp.MustCompile(`^PLANTSTORE_(TEST_.*|TORTURE|ARTIFACTS)$`)

// UnknownVariables returns a warning for each variable of the environment that looks like one of
// the command's and is neither that of a flag nor one of the others. A misspelt setting would
// silently fall back to its default.
func UnknownVariables(app *kong.Node, environ []string, others ...string) (warnings []string) {
	known := slices.Clone(others)
	for _, command := range app.Leaves(false) {
		for _, f := range command.Flags {
			known = append(known, f.Envs...)
		}
	}
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "PLANTSTORE_") && !slices.Contains(known, name) && !testVariables.MatchString(name) {
			warnings = append(warnings, fmt.Sprintf("unknown variable %s: did you mean %s?", name, nearest(name, known)))
		}
	}
	return warnings
}

// nearest returns the known name that is most like the given one.
func nearest(name string, known []string) string {
	return slices.MinFunc(known, func(a, b string) int {
		return editDistance(name, a) - editDistance(name, b)
	})
}

// editDistance returns how many bytes have to be inserted, removed or replaced to turn a
// into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// PrintSettings writes the effective settings as a configuration file. Secrets are masked.
func PrintSettings(out io.Writer, settings []*kong.Flag) error {
	var b strings.Builder
	for _, f := range settings {
		value := f.Target.Interface()
		if f.Target.Kind() == reflect.Slice && f.Target.Len() == 0 {
			continue
		}
		switch v := value.(type) {
		case *url.URL:
			if v == nil {
				continue // there is no default to print
			}
			value = v.String()
		case string:
			masked := MaskSecrets(v)
			if masked != v {
				b.WriteString("# xxxxx stands for a secret.\n")
			}
			if value = masked; masked == "" {
				continue
			}
		case fmt.Stringer: // a duration, for example
			value = v.String()
		}
		line, err := toml.Marshal(map[string]any{f.Name: value})
		if err != nil {
			return fmt.Errorf("print --%s: %w", f.Name, err)
		}
		b.Write(line)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// The passwords in the URL of a database. One that is not escaped, which the store refuses,
// may have any character.
var (
	passwordParameter = regexp.MustCompile(`([?&][a-z]*password=)[^&]*`)
	passwordOfUser    = regexp.MustCompile(`(?s)^([a-z]+://[^/?:]*:).*@`)
)

// MaskSecrets returns the URL of a database without its passwords, and other text as it is. It masks
// parameters first: an @ in one is not the end of a user's password.
func MaskSecrets(text string) string {
	return passwordOfUser.ReplaceAllString(passwordParameter.ReplaceAllString(text, "${1}xxxxx"), "${1}xxxxx@")
}

package main

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

// BeforeResolve reads the configuration file, if there is one. Commands that open the store
// read --db from it.
func (commands) BeforeResolve(line *kong.Context) error {
	command := line.Selected()
	if command == nil {
		return nil
	}
	file := flagNamed(command, "--config")
	if file == nil {
		return nil
	}
	settings, err := readConfig(line.FlagValue(file).(string), line.Model.Node)
	if err != nil {
		return usage("%w", err)
	}
	line.AddResolver(kong.ResolverFunc(settings.resolve))
	return nil
}

// AfterApply has --db override what else names a server, and --url what else names a store.
func (commands) AfterApply(line *kong.Context) error {
	command := line.Selected()
	if command == nil {
		return nil
	}
	store, server := flagNamed(command, "--db"), flagNamed(command, "--url")
	if store == nil || server == nil {
		return nil
	}
	typed := func(flag *kong.Flag) bool {
		return slices.ContainsFunc(line.Path, func(p *kong.Path) bool { return p.Flag == flag && !p.Resolved })
	}
	switch {
	case typed(store) && typed(server):
		return usage("--url names a server and --db a store: use only one of them")
	case typed(store):
		server.Target.SetZero()
	case typed(server):
		store.Target.SetZero()
	}
	return nil
}

// settingsOf returns the flags of serve that a configuration file can set, in the order
// of the help page.
func settingsOf(app *kong.Node) []*kong.Flag {
	serve := app.Children[slices.IndexFunc(app.Children, func(n *kong.Node) bool { return n.Name == "serve" })]
	return slices.DeleteFunc(slices.Clone(serve.Flags), func(f *kong.Flag) bool {
		return f.Name == "config" || f.Name == "print-config"
	})
}

// config has the settings of a configuration file, by the name of their flag, as the
// command line would have them.
type config map[string]string

// resolve returns the setting of a flag that the environment does not set.
func (c config) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	text, ok := c[flag.Name]
	if !ok || slices.ContainsFunc(flag.Envs, isSet) {
		return nil, nil
	}
	return text, nil
}

func isSet(variable string) bool {
	_, ok := os.LookupEnv(variable)
	return ok
}

// readConfig reads a configuration file, if there is one, and checks every setting in it.
func readConfig(file string, app *kong.Node) (config, error) {
	if file == "" {
		return nil, nil
	}
	known := settingsOf(app)
	var values map[string]any
	meta, err := toml.DecodeFile(file, &values)
	if syntax, ok := errors.AsType[toml.ParseError](err); ok {
		return nil, fmt.Errorf("%s, line %d: %s", file, syntax.Position.Line, syntax.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	settings := config{}
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

var (
	// flaglessVariables are secrets, which have no flag.
	flaglessVariables = []string{tokenEnv, fromTokenEnv, toTokenEnv, bootstrapEnv, webhookSecretEnv}
	// testVariables are those of Plantstore's own tests, which run the command.
	testVariables = regexp.MustCompile(`^PLANTSTORE_(TEST_.*|TORTURE|ARTIFACTS)$`)
)

// unknownVariables returns a warning for each variable of the environment that looks like one
// of the command's and is not. A misspelt setting would silently have its default.
func unknownVariables(app *kong.Node, environ []string) (warnings []string) {
	known := slices.Clone(flaglessVariables)
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

// printConfig writes the effective settings as a configuration file. Secrets are masked.
func printConfig(out io.Writer, settings []*kong.Flag) error {
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
			masked := maskSecrets(v)
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

// maskSecrets masks parameters first: an @ in one is not the end of a user's password.
func maskSecrets(text string) string {
	return passwordOfUser.ReplaceAllString(passwordParameter.ReplaceAllString(text, "${1}xxxxx"), "${1}xxxxx@")
}

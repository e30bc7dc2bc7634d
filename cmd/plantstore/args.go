package main

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"plantstore"
)

// negative matches arguments that are negative numbers or durations, and not flags.
var negative = regexp.MustCompile(`^-[0-9]`)

// negativePrefix precedes a negative argument, so that the parser does not take it for a
// flag. It is a NUL, which no argument can contain. popText removes it.
const negativePrefix = "\x00"

// prepareArgs prepares a command line for the parser: it joins each flag with its value
// and marks the negative numbers among the other arguments. A flag that lacks its value
// is an error; the parser would take it as empty.
func prepareArgs(app *kong.Node, args []string) ([]string, error) {
	takesValue := map[string]bool{}
	for _, command := range app.Leaves(false) {
		for _, f := range command.Flags {
			for _, name := range append([]string{f.Name}, f.Aliases...) {
				takesValue["--"+name] = !f.IsBool()
			}
		}
	}
	var prepared []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return append(prepared, args[i:]...), nil
		case negative.MatchString(arg):
			arg = negativePrefix + arg
		case takesValue[arg]:
			if i+1 == len(args) || isFlag(args[i+1]) {
				return nil, usage("%[1]s needs a value: write %[1]s=VALUE", arg)
			}
			i++
			arg += "=" + args[i]
		}
		prepared = append(prepared, arg)
	}
	return prepared, nil
}

func isFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && !negative.MatchString(arg)
}

func parseString(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	target.SetString(text)
	return err
}

// popText returns the next argument as it was typed.
func popText(ctx *kong.DecodeContext) (text string, err error) {
	err = ctx.Scan.PopValueInto("string", &text)
	return strings.TrimPrefix(text, negativePrefix), err
}

func parseID(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("an id must be an integer from -9223372036854775808 to 9223372036854775807, got %q", text)
	}
	target.SetInt(id)
	return nil
}

func parseTag(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	target.Set(reflect.ValueOf(plantstore.NewTag(text)))
	return err
}

func parseNetwork(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx)
	if err != nil {
		return err
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return fmt.Errorf("must be a network such as 10.0.0.0/8 or fd00::/8, got %q", text)
	}
	target.Set(reflect.ValueOf(p))
	return nil
}

// parseInt and parseDuration replace the parser's own, whose messages do not say what
// would be right. A flag's tag min has the smallest value that is allowed.
var (
	parseInt = parseNumber("an integer", func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) })

	parseDuration = parseNumber("a duration such as 500ms, 30s or 5m", func(text string) (int64, error) {
		d, err := time.ParseDuration(text)
		if d < 0 {
			err = errors.New("negative")
		}
		return int64(d), err
	})
)

func parseNumber(want string, parse func(string) (int64, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		value, err := popText(ctx)
		if err != nil {
			return err
		}
		n, err := parse(value)
		if err != nil {
			return fmt.Errorf("must be %s, got %q", want, value)
		}
		least := ctx.Value.Tag.Get("min")
		if smallest, err := parse(least); err == nil && n < smallest {
			return fmt.Errorf("must be at least %s, got %s", least, value)
		}
		target.SetInt(n)
		return nil
	}
}

// parseMessage says what is wrong with a command line. A message about one flag says
// what would be right; for others, the help does.
func parseMessage(err error) string {
	text := strings.ReplaceAll(err.Error(), negativePrefix, "")
	if strings.HasPrefix(text, "--") || errors.Is(err, errUsage) {
		return text
	}
	command := "plantstore"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context != nil {
		if n := parse.Context.Selected(); n != nil {
			command = n.FullPath()
		}
	}
	return text + "; try: " + command + " --help"
}

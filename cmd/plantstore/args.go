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

// prepareArgs prepares a command line for the parser: it joins each flag with its value,
// and puts a negative number among the other arguments, with those that follow it, after --,
// so that the parser does not take it for a flag. A flag that lacks its value is an error;
// the parser would take it as empty.
func prepareArgs(app *kong.Node, args []string) ([]string, error) {
	takesValue := map[string]bool{}
	for _, command := range app.Leaves(false) {
		for _, f := range command.Flags {
			for _, name := range append([]string{f.Name}, f.Aliases...) {
				takesValue["--"+name] = !f.IsBool()
			}
		}
	}
	var prepared, last []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			last = append(last, args[i+1:]...)
			i = len(args)
		case negative.MatchString(arg), len(last) > 0 && !isFlag(arg):
			last = append(last, arg)
		case takesValue[arg]:
			if i+1 == len(args) || isFlag(args[i+1]) {
				return nil, usage("%[1]s needs a value: write %[1]s=VALUE", arg)
			}
			i++
			prepared = append(prepared, arg+"="+args[i])
		default:
			prepared = append(prepared, arg)
		}
	}
	if len(last) > 0 {
		prepared = append(append(prepared, "--"), last...)
	}
	return prepared, nil
}

func isFlag(arg string) bool {
	return len(arg) > 1 && arg[0] == '-' && !negative.MatchString(arg)
}

func parseTag(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	err := ctx.Scan.PopValueInto("string", &text)
	target.Set(reflect.ValueOf(plantstore.NewTag(text)))
	return err
}

func parseNetwork(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("string", &text); err != nil {
		return err
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return fmt.Errorf("must be a network such as 10.0.0.0/8 or fd00::/8, got %q", text)
	}
	target.Set(reflect.ValueOf(p))
	return nil
}

// parseInt, parseID and parseDuration replace the parser's own, whose messages do not say
// what would be right. A flag's tag min has the smallest value that is allowed.
var (
	parseInt = parseNumber("must be an integer", parseInt64)

	parseID = parseNumber("an id must be an integer from -9223372036854775808 to 9223372036854775807", parseInt64)

	parseDuration = parseNumber("must be a duration such as 500ms, 30s or 5m", func(text string) (int64, error) {
		d, err := time.ParseDuration(text)
		if d < 0 {
			err = errors.New("negative")
		}
		return int64(d), err
	})
)

func parseInt64(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func parseNumber(want string, parse func(string) (int64, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("string", &text); err != nil {
			return err
		}
		n, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s, got %q", want, text)
		}
		least := ctx.Value.Tag.Get("min")
		if smallest, err := parse(least); err == nil && n < smallest {
			return fmt.Errorf("must be at least %s, got %s", least, text)
		}
		target.SetInt(n)
		return nil
	}
}

// parseMessage says what is wrong with a command line. A message about one flag says
// what would be right; for others, the help does.
func parseMessage(err error) string {
	text := err.Error()
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

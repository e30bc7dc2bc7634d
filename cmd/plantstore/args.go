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
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"plantstore"
)

// negative matches arguments that are negative numbers or durations, and not flags.
var negative = regexp.MustCompile(`^-[0-9]`)

// prepareArgs prepares a command line for the parser: it joins each flag with its value,
// and puts a negative number among the other arguments, with those that follow it, after --,
// so that the parser does not take it for a flag. A flag that lacks its value is an error;
// the parser would take it as empty. So is text that is not UTF-8, which it would change.
func prepareArgs(app *kong.Node, args []string) ([]string, error) {
	for i, arg := range args {
		if !utf8.ValidString(arg) { // it may have a password
			return nil, usage("argument %d must be UTF-8", i+1)
		}
	}
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

// mappers replace the parser's own, whose messages do not say what would be right.
var mappers = []kong.Option{
	kong.KindMapper(reflect.Int, mapper("must be an integer", parseInt)),
	kong.KindMapper(reflect.Int64, mapper("must be an integer", parseInt)),
	typeMapper[plantstore.ID]("an id must be an integer from -9223372036854775808 to 9223372036854775807", parseInt),
	typeMapper[time.Duration]("must be a duration such as 500ms, 30s or 5m", func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if d < 0 {
			err = errors.New("negative")
		}
		return d, err
	}),
	typeMapper[netip.Prefix]("must be a network such as 10.0.0.0/8 or fd00::/8", func(text string) (netip.Prefix, error) {
		p, err := netip.ParsePrefix(text)
		if p.Addr().Is4In6() {
			err = errors.New("an IPv4 network as IPv6")
		}
		return p, err
	}),
	typeMapper[plantstore.Tag]("", func(text string) (plantstore.Tag, error) { return plantstore.NewTag(text), nil }),
}

func parseInt(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func typeMapper[Target, T any](want string, parse func(string) (T, error)) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[Target](), mapper(want, parse))
}

// mapper returns a mapper of the values that parse accepts. The tag min of a flag that is a
// number has the smallest value that is allowed.
func mapper[T any](want string, parse func(string) (T, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("string", &text); err != nil {
			return err
		}
		value, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s, got %q", want, text)
		}
		target.Set(reflect.ValueOf(value).Convert(target.Type()))
		least := ctx.Value.Tag.Get("min")
		if smallest, err := parse(least); least != "" && err == nil && target.Int() < reflect.ValueOf(smallest).Int() {
			return fmt.Errorf("must be at least %s, got %s", least, text)
		}
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
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
		command = parse.Context.Selected().FullPath()
	}
	return text + "; try: " + command + " --help"
}

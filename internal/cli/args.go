// Package cli extends kong: values whose errors say what would be right, settings in a file and in
// the environment, saved tokens, completion, a manual page, and input and output that can be
// interrupted. It knows none of the commands.
package cli

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"plantstore"
	"plantstore/internal/wire"
)

// negative matches arguments that are negative numbers or durations, and not flags.
var negative = regexp.MustCompile(`^-[0-9]`)

// Prepare prepares a command line for the parser: it joins each flag with its value,
// and puts a negative number among the other arguments, with those that follow it, after --,
// so that the parser does not take it for a flag. A flag that lacks its value is an error;
// the parser would take it as empty. So is text that is not UTF-8, which it would change.
func Prepare(app *kong.Node, args []string) ([]string, error) {
	for i, arg := range args {
		if !utf8.ValidString(arg) { // it may have a password
			return nil, Usagef("argument %d must be UTF-8", i+1)
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
				return nil, Usagef("%[1]s needs a value: write %[1]s=VALUE", arg)
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

// Mappers replace the parser's own, whose messages do not say what would be right.
var Mappers = []kong.Option{
	kong.KindMapper(reflect.Int, mapper("must be an integer", parseInt)),
	kong.KindMapper(reflect.Int64, mapper("must be an integer", parseInt)),
	typeMapper[plantstore.ID]("an id must be an integer from -9223372036854775808 to 9223372036854775807", parseInt),
	kong.NamedMapper("size", mapper("must be a size such as 1048576, 500KB or 1MiB", parseSize)),
	typeMapper[time.Duration]("must be a duration such as 500ms, 30s or 7d", ParseDuration),
	typeMapper[netip.Prefix]("must be an address or a network such as 10.0.0.1, 10.0.0.0/8 or fd00::/8", parseNetwork),
	typeMapper[time.Time]("must be a time such as 2026-01-31T12:00:00Z", wire.ParseTime),
	typeMapper[plantstore.Tag]("", func(text string) (plantstore.Tag, error) { return plantstore.NewTag(text), nil }),
}

func parseInt(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

// maxDays is how many days a duration may have, 100 years.
const maxDays = 36500

// ParseDuration parses a duration that may begin with days, such as 7d or 1d12h.
func ParseDuration(text string) (d time.Duration, err error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	if rest != "" {
		if d, err = time.ParseDuration(rest); err != nil {
			return 0, err
		}
	}
	n, err := strconv.ParseUint(days, 10, 16)
	if err != nil || n > maxDays || d < 0 || d > maxDays*24*time.Hour {
		return 0, errors.New("not a duration, or too long, or negative")
	}
	return time.Duration(n)*24*time.Hour + d, nil
}

// units are the sizes of the units of bytes, in lower case.
var units = map[string]int64{
	"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// parseSize parses a number of bytes that may have a unit, such as 500KB or 1MiB.
func parseSize(text string) (int64, error) {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit, known := units[strings.ToLower(text[len(number):])]
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !known || n < 0 || n > math.MaxInt64/unit {
		return 0, errors.New("not a size, or too large")
	}
	return n * unit, nil
}

// parseNetwork parses a network. An address is a network of one.
func parseNetwork(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	if p.Addr().Is4In6() {
		err = errors.New("an IPv4 network as IPv6")
	}
	return p, err
}

func typeMapper[Target, T any](want string, parse func(string) (T, error)) kong.Option {
	return kong.TypeMapper(reflect.TypeFor[Target](), mapper(want, parse))
}

// mapper returns a mapper of the values that parse accepts. The tags min and max of a flag that
// is a number have the smallest and the largest value that are allowed.
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
		least, most := ctx.Value.Tag.Get("min"), ctx.Value.Tag.Get("max")
		if smallest, err := parse(least); least != "" && err == nil && target.Int() < reflect.ValueOf(smallest).Int() {
			return fmt.Errorf("must be at least %s, got %s", least, text)
		}
		if largest, err := parse(most); most != "" && err == nil && target.Int() > reflect.ValueOf(largest).Int() {
			return fmt.Errorf("must be at most %s, got %s", most, text)
		}
		return nil
	}
}

// WithFlag returns the arguments, as [Prepare] returns them, with another value of a flag, as they
// are typed in a shell.
func WithFlag(args []string, flag, value string) string {
	var words []string
	for _, arg := range args {
		name, text, hasText := strings.Cut(arg, "=")
		switch {
		case name == flag:
		case hasText:
			words = append(words, name+"="+shellQuoted(text))
		default:
			words = append(words, arg)
		}
	}
	return strings.Join(append(words, flag+"="+shellQuoted(value)), " ")
}

// shellQuoted returns text as one word of a shell.
func shellQuoted(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

var plainWord = regexp.MustCompile(`^[\w:/.,@%+-]+$`)

// Explain says what is wrong with a command line that could not be parsed. A message about one
// flag says what would be right; for others, the help does.
func Explain(err error) string {
	text := err.Error()
	if strings.HasPrefix(text, "--") || errors.Is(err, ErrUsage) {
		return text
	}
	command := "plantstore"
	if parse, ok := errors.AsType[*kong.ParseError](err); ok && parse.Context.Selected() != nil {
		command = parse.Context.Selected().FullPath()
	}
	return text + "; try: " + command + " --help"
}

// ErrUsage marks an error in the command line.
var ErrUsage = errors.New("usage")

// Usagef returns an [ErrUsage] with a message.
func Usagef(format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...)}
}

// usageError must be a pointer: the parser asks whether the error of a provider is nil.
type usageError struct{ error }

func (*usageError) Is(target error) bool { return target == ErrUsage }

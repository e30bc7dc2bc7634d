package plantstore

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Code is an error of the domain, and its number in the interface. Codes are
// sentinels: use errors.Is(err, ErrIDTaken). A Code divided by 100 is the HTTP
// status of the response. Numbers are never reused.
type Code int32

// The errors of the domain.
const (
	ErrNotJSON       Code = 40001 // the body is not JSON
	ErrNotObject     Code = 40002 // the body is JSON, but not an object
	ErrMissing       Code = 40003 // a required field is missing
	ErrType          Code = 40004 // a field has the wrong type
	ErrRange         Code = 40005 // an id is outside the range of int64
	ErrParameter     Code = 40006 // a path, query or condition parameter is invalid
	ErrTooManyToSort Code = 40007 // there are too many plants to sort by name
	ErrNotCSV        Code = 40008 // a file or a record of it is not CSV
	ErrIDTaken       Code = 40010 // another plant has this id
	ErrNoToken       Code = 40101 // the request has no token
	ErrBadToken      Code = 40102 // the token is unknown, malformed or revoked
	ErrTokenExpired  Code = 40103 // the token has expired
	ErrScope         Code = 40301 // the token lacks the scope
	ErrPrivilege     Code = 40302 // the token would have more rights than its creator
	ErrNoPath        Code = 40401 // there is no such path
	ErrNoPlant       Code = 40402 // there is no such plant
	ErrNoTokenID     Code = 40403 // there is no token with this id
	ErrNoWebhook     Code = 40404 // there is no such webhook
	ErrMethod        Code = 40501 // the method is not allowed on this path
	ErrTimeout       Code = 40801 // the request did not arrive in time
	ErrLastToken     Code = 40901 // nobody could create tokens any more
	ErrTooMany       Code = 40902 // the store already holds the maximum
	ErrDisabled      Code = 40903 // the webhook is disabled or paused
	ErrGone          Code = 41001 // the cursor is gone
	ErrPrecondition  Code = 41201 // If-Match or If-None-Match does not hold
	ErrTooLarge      Code = 41301 // the body is too large
	ErrMediaType     Code = 41501 // the body has the wrong media type
	ErrRate          Code = 42901 // the client sends too many requests
	ErrHeaders       Code = 43101 // the request header is too large
	ErrInternal      Code = 50001 // the server failed
	ErrUnavailable   Code = 50301 // overloaded, or the store cannot be reached
)

var codeText = map[Code]string{
	ErrNotJSON:       "the body is not JSON",
	ErrNotObject:     "the body is not a JSON object",
	ErrMissing:       "a required field is missing",
	ErrType:          "a field has the wrong type",
	ErrRange:         "the id is outside the range of int64",
	ErrParameter:     "a parameter is invalid",
	ErrTooManyToSort: "there are too many plants to sort by name",
	ErrNotCSV:        "the body is not CSV",
	ErrIDTaken:       "another plant has this id",
	ErrNoToken:       "no bearer token",
	ErrBadToken:      "the token is unknown, malformed or revoked",
	ErrTokenExpired:  "the token has expired",
	ErrScope:         "the token does not have the scope",
	ErrPrivilege:     "the token would have more rights than its creator",
	ErrNoPath:        "no such path",
	ErrNoPlant:       "no such plant",
	ErrNoTokenID:     "no such token",
	ErrNoWebhook:     "no such webhook",
	ErrMethod:        "the method is not allowed here",
	ErrTimeout:       "the request did not arrive in time",
	ErrLastToken:     "this is the last token that can create others",
	ErrTooMany:       "there are too many",
	ErrDisabled:      "the webhook is disabled",
	ErrGone:          "the cursor is gone",
	ErrPrecondition:  "the precondition does not hold",
	ErrTooLarge:      "the body is too large",
	ErrMediaType:     "the body has the wrong media type",
	ErrRate:          "too many requests",
	ErrHeaders:       "the request header is too large",
	ErrInternal:      "the server failed",
	ErrUnavailable:   "the store is unavailable",
}

// Error returns a short description of the code.
func (c Code) Error() string { return codeText[c] }

// Error is a [Code] with a message that names the thing, what is wrong with it and what
// would be right. Clients of the interface see it.
type Error struct {
	Code    Code
	Message string
}

// maxMessage is the approximate maximum length of a message, in bytes.
const maxMessage = 4 << 10

// Errorf returns an [*Error] with the code and a formatted message, cut off at 4 KiB.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Message: shorten(fmt.Sprintf(format, args...), maxMessage)}
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the error's Code, for errors.Is.
func (e *Error) Unwrap() error { return e.Code }

// Problems collects everything that is wrong with a request, so that one response
// can report it all, as far as that fits into 4 KiB. The zero value is ready to use.
type Problems struct {
	code Code // of the first problem
	text string
	more int // the number of problems that do not fit
}

// Add adds a problem.
func (p *Problems) Add(code Code, format string, args ...any) {
	if p.text == "" {
		p.code = code
		p.text = shorten(fmt.Sprintf(format, args...), maxMessage)
		return
	}
	if p.more == 0 {
		if text := fmt.Sprintf(format, args...); len(p.text)+len(text) <= maxMessage {
			p.text += "; " + text
			return
		}
	}
	p.more++
}

// Wrap adds a problem with a field. err is nil, which adds nothing, or an [*Error].
func (p *Problems) Wrap(field string, err error) {
	if e, ok := errors.AsType[*Error](err); ok {
		p.Add(e.Code, "%q %s", field, e.Message)
	}
}

// Err returns all problems as one [*Error] with the code of the first, or nil if
// there are none.
func (p *Problems) Err() error {
	if p.text == "" {
		return nil
	}
	message := p.text
	if p.more > 0 {
		message += fmt.Sprintf("; and %d more", p.more)
	}
	return &Error{Code: p.code, Message: message}
}

// Shorten returns the text as an error message quotes it: its first 40 bytes or so.
func Shorten(text string) string { return shorten(text, 40) }

func shorten(text string, size int) string {
	if len(text) <= size {
		return text
	}
	end := size
	for end > size-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// Errors between a [Store] and its writer. Clients never see them.
var (
	// ErrRetry means that a batch was not applied or that its outcome is unknown,
	// and that applying it again may succeed.
	ErrRetry = errors.New("try again")

	// ErrUntrusted means that the store no longer knows what is durable, for example
	// after a failed fsync. The process must stop; opening the store again recovers.
	ErrUntrusted = errors.New("the store can no longer be trusted")

	// ErrDamaged means that part of the store's data on disk cannot be read. The store
	// refuses writes from then on, with ErrUnavailable. The process does not stop: the rest
	// can still be read, and opening the store again would not help.
	ErrDamaged = errors.New("the store is damaged")
)

// ErrNoSuchToken means that the store has no token with this hash.
var ErrNoSuchToken = errors.New("no such token")

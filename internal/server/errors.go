package server

import (
	"errors"
	"net/http"
	"strconv"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/wire"
)

// withPlantID says which plant an error of the store is about.
func withPlantID(id plantstore.ID, err error) error {
	switch {
	case errors.Is(err, plantstore.ErrIDTaken):
		return plantstore.Errorf(plantstore.ErrIDTaken, `"id" %d is taken by another plant: choose another id`, id)
	case errors.Is(err, plantstore.ErrNoPlant):
		return plantstore.Errorf(plantstore.ErrNoPlant, "there is no plant with id %d", id)
	case errors.Is(err, plantstore.ErrPrecondition):
		return plantstore.Errorf(plantstore.ErrPrecondition, "plant %d does not meet the request's condition: get it again", id)
	case err == plantstore.ErrTooLarge:
		return plantstore.Errorf(plantstore.ErrTooLarge, "plant %d would be larger than a body may be: shorten its name or its tag", id)
	}
	return err
}

// statusOf is the table from errors to statuses: the Code's own status, with the
// message that came with it if there is one. An error without a Code is a bug in
// Plantstore or a failure of the machine, and its text stays in the log.
func statusOf(err error) (status int, body *plantstore.Error) {
	if e, ok := errors.AsType[*plantstore.Error](err); ok {
		return int(e.Code) / 100, e
	}
	if code, ok := errors.AsType[plantstore.Code](err); ok {
		return int(code) / 100, &plantstore.Error{Code: code, Message: code.Error()}
	}
	return http.StatusInternalServerError, &plantstore.Error{
		Code: plantstore.ErrInternal, Message: "the server failed: look up the X-Request-Id in the server's log",
	}
}

// writeError responds with an Error and the headers that belong to its status.
func writeError(c *call, err error) {
	status, body := statusOf(err)
	h := c.w.Header()
	h.Del(wire.HeaderCount)
	h.Del(wire.HeaderCursor) // there is no page,
	h.Del("Link")            // and none after it
	switch body.Code {
	case plantstore.ErrNoToken:
		h.Set("WWW-Authenticate", `Bearer realm="plantstore"`)
	case plantstore.ErrBadToken, plantstore.ErrTokenExpired:
		h.Set("WWW-Authenticate", `Bearer realm="plantstore", error="invalid_token"`)
	case plantstore.ErrScope:
		h.Set("WWW-Authenticate", `Bearer realm="plantstore", error="insufficient_scope"`)
	case plantstore.ErrUnavailable, plantstore.ErrRate:
		retryAfter := 1
		if limited, ok := errors.AsType[*auth.RateError](err); ok {
			retryAfter = limited.RetryAfter
		}
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	case plantstore.ErrTimeout, plantstore.ErrTooLarge, plantstore.ErrHeaders:
		if c.r.ProtoMajor == 1 { // later versions end the stream only
			h.Set("Connection", "close")
		}
	}
	text := append(wire.EncodeError(body), '\n')
	if c.r.ProtoMajor > 1 {
		h.Set("Content-Length", strconv.Itoa(len(text))) // discardBody sends it before the end
	}
	_ = writeJSON(c, status, text)
}

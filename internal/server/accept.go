package server

import (
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// preferred returns the media type that the client prefers of those given, or the first
// if it does not say. The others, exports and streams, must be named: a wildcard only says
// how much the client wants the first (RFC 9110, 12.5.1).
func preferred(r *http.Request, medias ...string) string {
	kind, _, _ := strings.Cut(medias[0], "/")
	matching := []string{"*/*", kind + "/*", medias[0]} // the most specific counts
	best, bestWeight, specific := medias[0], 0.0, -1
	ranges := accepted(r.Header["Accept"])
	for _, a := range ranges {
		i := slices.Index(matching, a.value)
		if i > specific || i >= 0 && i == specific && a.weight > bestWeight {
			bestWeight, specific = a.weight, i
		}
	}
	for _, a := range ranges {
		if slices.Contains(medias[1:], a.value) && a.weight > 0 && a.weight >= bestWeight {
			best, bestWeight = a.value, a.weight
		}
	}
	return best
}

// weighted is an element of a header such as Accept or Accept-Encoding.
type weighted struct {
	value  string // in lower case
	weight float64
}

// accepted returns the elements of such a header.
func accepted(fields []string) (all []weighted) {
	for _, field := range fields {
		for part := range strings.SplitSeq(field, ",") {
			value, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			weight := 1.0
			if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
				weight = q
			}
			all = append(all, weighted{value, weight})
		}
	}
	return all
}

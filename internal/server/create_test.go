package server_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"plantstore"
	"plantstore/internal/servertest"
	"plantstore/internal/wire/wiretest"
)

func TestCreateHandlesEveryBody(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	for i, body := range wiretest.Bodies {
		t.Run(fmt.Sprintf("%d %.40q", i, body.Text), func(t *testing.T) {
			got := s.create(t, body.Text)
			if body.Code != 0 {
				got.wantError(t, body.Code)
				s.wantStored(t)
				return
			}
			defer s.Clear(t)
			got.wantPlant(t, body.Plant)
			s.wantStored(t, body.Plant)
		})
	}
}

func TestCreateReturnsThePlantAndNothingElse(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	for _, tt := range []struct{ body, want string }{
		{`{"id":1,"name":"Monstera","tag":"tropical"}`, `{"name":"Monstera","tag":"tropical"}`},
		{`{"id":2,"name":"Oak"}`, `{"name":"Oak"}`},
		{`{"id":3,"name":"","tag":""}`, `{"name":"","tag":""}`},
		{`{"id":4,"name":"a","owner":"b","tags":[]}`, `{"name":"a"}`},
	} {
		got := s.create(t, tt.body)
		if got.status != 200 || strings.TrimSpace(string(got.body)) != tt.want {
			t.Errorf("%s: got %d %s, want %s", tt.body, got.status, got.body, tt.want)
		}
		got.wantHeader(t, "Content-Type", "application/json")
		got.wantHeader(t, "Content-Length", strconv.Itoa(len(got.body)))
	}
}

func TestCreatingTheSamePlantAgainChangesNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		tagged := plantstore.Plant{ID: 7, Name: "Oak", Tag: plantstore.NewTag("tree")}
		for _, body := range []string{
			`{"id":7,"name":"Oak","tag":"tree"}`, `{"id":7,"name":"Oak","tag":"tree"}`,
			`{"tag":"tree","name":"\u004fak","id":70e-1,"more":true}`,
		} {
			s.create(t, body).wantPlant(t, tagged)
			s.wantStored(t, tagged)
		}
	})
}

func TestTakenIDIsRefused(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		bare := plantstore.Plant{ID: -8, Name: "Oak"}
		empty := plantstore.Plant{ID: 9, Name: "Oak", Tag: plantstore.NewTag("")}
		s.create(t, `{"id":-8,"name":"Oak"}`).wantPlant(t, bare)
		s.create(t, `{"id":9,"name":"Oak","tag":""}`).wantPlant(t, empty)
		for _, body := range []string{
			`{"id":-8,"name":"oak"}`, `{"id":-8,"name":"Oak "}`, `{"id":-8,"name":"Oak\u0000"}`, `{"id":-8,"name":""}`,
			`{"id":-8,"name":"Oak","tag":""}`, `{"id":-8,"name":"Oak","tag":"tree"}`,
		} {
			s.create(t, body).wantError(t, plantstore.ErrIDTaken, `"id"`, "-8", "taken")
		}
		s.create(t, `{"id":9,"name":"Oak"}`).wantError(t, plantstore.ErrIDTaken, "9")
		s.wantStored(t, bare, empty)
	})
}

func TestErrorNamesEveryProblem(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	for _, tt := range []struct {
		body  string
		code  plantstore.Code
		texts []string
	}{
		{`{}`, plantstore.ErrMissing, []string{`"id" is missing`, `"name" is missing`}},
		{`{"tag":null}`, plantstore.ErrType, []string{`"tag" must be a string, got null`, `"id" is missing`, `"name" is missing`}},
		{
			`{"id":"1","name":null,"tag":3}`, plantstore.ErrType,
			[]string{`"id" must be an integer, got a string`, `"name" must be a string, got null`, `"tag" must be a string, got a number`},
		},
		{
			`{"name":[],"tag":{},"id":true}`, plantstore.ErrType,
			[]string{`"name" must be a string, got an array`, `"tag" must be a string, got an object`, `"id" must be an integer, got a boolean`},
		},
		{
			`{"id":9223372036854775808,"tag":false}`, plantstore.ErrRange,
			[]string{`"id" must be from -9223372036854775808 to 9223372036854775807, got 9223372036854775808`, `"tag" must be`, `"name" is missing`},
		},
		{`{"id":1.5}`, plantstore.ErrType, []string{`"id" must be an integer, got 1.5`, `"name" is missing`}},
		{`{"ID":1,"Name":"Fern"}`, plantstore.ErrMissing, []string{`"id"`, `"name"`}},
	} {
		s.create(t, tt.body).wantError(t, tt.code, tt.texts...)
	}
}

func TestErrorSaysWhereTheBodyStopsBeingJSON(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	for _, tt := range []struct{ body, text string }{
		{``, "empty"},
		{`  `, "empty"},
		{`{"id":1,"name":"Fern"`, "unexpected end at byte 21"},
		{`{"id":1,"name":"Fern"}x`, "byte 22"},
		{`{"id":1,"name":"Fern"} {}`, "unexpected data after the value"},
		{`{"id":1,"id":2,"name":"Fern"}`, `duplicate member "id"`},
	} {
		s.create(t, tt.body).wantError(t, plantstore.ErrNotJSON, tt.text)
	}
}

func TestErrorIsShortHoweverLongTheBodyIs(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	long := strings.Repeat("7", 500_000)
	for _, body := range []string{
		`{"id":` + long + `,"name":"Fern"}`,
		`{"id":0.` + long + `,"name":"Fern"}`,
		`{"id":"` + long + `","name":` + long + `}`,
		`{"id":1,"name":"` + long + `","name":""}`,
		`{"` + long + `":1,"` + long + `":1}`,
		`"` + long + `" 1`,
		`{"id":1,"name":"Fern"} "` + long,
	} {
		if got := s.create(t, body); got.status != 400 || len(got.body) > 1000 {
			t.Errorf("%.30q…: got %d with %d bytes", body, got.status, len(got.body))
		}
	}
}

func TestDeepNestingIsRefusedFromTenThousandLevelsOn(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{MaxBody: 4 << 20})
	arrays := func(levels int) string {
		return `{"x":` + strings.Repeat(`[`, levels) + strings.Repeat(`]`, levels) + `,"id":1,"name":"Fern"}`
	}
	objects := func(levels int) string {
		return `{"x":` + strings.Repeat(`{"":`, levels) + `0` + strings.Repeat(`}`, levels) + `,"id":1,"name":"Fern"}`
	}
	for _, nested := range []func(levels int) string{arrays, objects} {
		for _, levels := range []int{1, 9_000, 9_999} {
			s.create(t, nested(levels)).wantPlant(t, fern(1))
		}
		for _, levels := range []int{10_000, 20_000, 500_000} {
			s.create(t, nested(levels)).wantError(t, plantstore.ErrNotJSON)
		}
	}
	s.create(t, strings.Repeat(`[`, 500_000)).wantError(t, plantstore.ErrNotJSON)
	s.create(t, strings.Repeat(`{"id":`, 500_000)).wantError(t, plantstore.ErrNotJSON)
	s.create(t, arrays(9_000)[:9_000]).wantError(t, plantstore.ErrNotJSON)
}

func TestOnlyJSONIsAccepted(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	const body = `{"id":1,"name":"Fern"}`
	for _, media := range []string{
		"application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8", `application/json; charset="utf-8"`,
		"application/json; profile=x; version=1", "Application/JSON", "application/json ;charset=utf-8", " application/json", "application/json;",
	} {
		s.create(t, body, "Content-Type: "+media).wantPlant(t, fern(1))
	}
	for _, media := range []string{
		"text/plain", "text/json", "application/x-json", "application/jsonp", "application/json5", "application/problem+json", "application/vnd.api+json",
		"application/*", "*/*", "json", "application", "application/", "/json", "application/json, text/plain", "application/jsön",
		"application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/x-ndjson", "application/xml", "text/plain; x=application/json",
	} {
		s.create(t, body, "Content-Type: "+media).wantError(t, plantstore.ErrMediaType, "application/json", "Content-Type")
	}
	s.create(t, body, "Content-Type: application/json", "Content-Type: text/plain").wantError(t, plantstore.ErrMediaType)
	s.create(t, body, "Content-Type:").wantError(t, plantstore.ErrMediaType, "application/json", "no Content-Type")
	s.create(t, "", "Content-Type:").wantError(t, plantstore.ErrMediaType)
}

func TestCompressedBodyIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, servertest.Options{})
	const body = `{"id":1,"name":"Fern"}`
	for _, encoding := range []string{"gzip", "deflate", "br", "zstd", "GZIP", "x-gzip", "gzip, identity", "aws-chunked"} {
		s.create(t, body, "Content-Encoding: "+encoding).wantError(t, plantstore.ErrMediaType, "Content-Encoding", encoding)
	}
	s.create(t, body, "Content-Encoding: identity").wantPlant(t, fern(1))
	s.create(t, body, "Content-Encoding: identity", "Content-Encoding: gzip").wantError(t, plantstore.ErrMediaType)
}

func TestCreateIgnoresTheQuery(t *testing.T) {
	t.Parallel()
	s := startDefault(t)
	got := s.send(t, "POST", s.plantsPath()+"?id=2&name=Oak", `{"id":1,"name":"Fern"}`, s.withDefaults(nil)...)
	got.wantPlant(t, fern(1))
	s.wantStored(t, fern(1))
}

func TestConcurrentCreatesDoNotMix(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		const clients, each = 16, 20
		var group sync.WaitGroup
		for client := range clients {
			group.Go(func() {
				for i := range each {
					id := client*each + i
					// Bodies of different lengths show up in each other if they
					// share a buffer.
					plant := plantstore.Plant{
						ID: plantstore.ID(id), Name: strings.Repeat(strconv.Itoa(id), i+1), Tag: plantstore.NewTag(strconv.Itoa(client)),
					}
					text, _ := plant.Tag.Text()
					got := s.create(t, fmt.Sprintf(`{"id":%d,"name":%q,"tag":%q}`, id, plant.Name, text))
					if want := fmt.Sprintf("{\"name\":%q,\"tag\":%q}\n", plant.Name, text); string(got.body) != want {
						t.Errorf("got %s, want %s", got.body, want)
					}
				}
			})
		}
		group.Wait()
		stored := s.Plants(t)
		if len(stored) != clients*each {
			t.Errorf("%d plants are stored, want %d", len(stored), clients*each)
		}
		for i, plant := range stored {
			if want := strings.Repeat(strconv.Itoa(i), i%each+1); int(plant.ID) != i || plant.Name != want {
				t.Errorf("plant %d is stored as %v", i, plant)
			}
		}
	})
}

func TestOneOfManyConcurrentCreatesGetsTheID(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		const clients = 16
		replies := make([]reply, clients)
		var group sync.WaitGroup
		for i := range clients {
			group.Go(func() { replies[i] = s.create(t, fmt.Sprintf(`{"id":1,"name":"%d"}`, i)) })
		}
		group.Wait()
		winner := -1
		for i, got := range replies {
			if got.status == 200 && winner < 0 {
				winner = i
				continue
			}
			got.wantError(t, plantstore.ErrIDTaken)
		}
		s.wantStored(t, plantstore.Plant{ID: 1, Name: strconv.Itoa(winner)})
	})
}

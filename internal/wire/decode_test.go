package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/wire"
	"plantstore/internal/wire/wiretest"
)

// decodeNewPlant decodes a copy of the body, and overwrites that afterwards, as the
// next user of a pooled buffer does.
func decodeNewPlant(body []byte) (plantstore.Plant, error) {
	buffer := bytes.Clone(body)
	plant, err := wire.DecodeNewPlant(bytes.NewBuffer(buffer))
	for i := range buffer {
		buffer[i] = 'x'
	}
	return plant, err
}

// checkNewPlant compares the decoder with the oracle, and encodes what it decoded.
func checkNewPlant(o wiretest.Oracle, body []byte) (wiretest.Verdict, error) {
	want, wantPlant := o.NewPlant(body)
	got, failed := decodeNewPlant(body)
	verdict, err := wiretest.VerdictOf(failed)
	switch {
	case err != nil || want == wiretest.Undecided:
		return want, err
	case verdict != want:
		return want, fmt.Errorf("the decoder says %v (%v), the oracle %v", verdict, failed, want)
	case got != wantPlant:
		return want, fmt.Errorf("the decoder read %v, the oracle %v", got, wantPlant)
	case verdict != wiretest.Valid:
		return want, nil
	}
	return want, checkEncoded(o, got)
}

// checkEncoded lets the oracle decode a plant in both encodings.
func checkEncoded(o wiretest.Oracle, plant plantstore.Plant) error {
	body, err := wire.AppendNewPlant(nil, plant)
	if err != nil {
		return err
	}
	if verdict, again := o.NewPlant(body); verdict != wiretest.Valid || again != plant {
		return fmt.Errorf("%v is encoded as the NewPlant %q", plant, body)
	}
	if body, err = wire.AppendPlant(body[:0], plant); err != nil {
		return err
	}
	plant.ID = 0
	if verdict, again := o.Plant(body); verdict != wiretest.Valid || again != plant {
		return fmt.Errorf("%v is encoded as the Plant %q", plant, body)
	}
	return nil
}

func FuzzDecodeNewPlant(f *testing.F) {
	for _, body := range wiretest.Bodies {
		f.Add([]byte(body.Text))
	}
	for _, body := range wiretest.EdgeCases() {
		f.Add([]byte(body))
	}
	o := wiretest.NewOracle(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := checkNewPlant(o, body); err != nil {
			t.Errorf("%q: %v", body, err)
		}
	})
}

// FuzzDecodePlant does the same for the body of a replace, in which an id is a member
// like any other.
func FuzzDecodePlant(f *testing.F) {
	for _, body := range wiretest.Bodies {
		f.Add([]byte(body.Text))
	}
	for _, body := range wiretest.EdgeCases() {
		f.Add([]byte(strings.Replace(body, `"id":1,`, "", 1)))
	}
	o := wiretest.NewOracle(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		want, wantPlant := o.Plant(body)
		got, failed := wire.DecodePlant(bytes.NewBuffer(bytes.Clone(body)))
		verdict, err := wiretest.VerdictOf(failed)
		if err != nil || verdict != want || got != wantPlant {
			t.Errorf("%q: the decoder says %v (%v) and read %v, the oracle %v and %v", body, verdict, failed, got, want, wantPlant)
		}
	})
}

// This is a small part of the fuzzer's work, in every run of the tests. The long form is
// faster than the fuzzer, because it does not measure coverage.
func TestDecoderAgreesWithTheOracleOnMutatedBodies(t *testing.T) {
	bodies := 10_000
	if os.Getenv("PLANTSTORE_TORTURE") == "1" {
		bodies = 20_000_000
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	o := wiretest.NewOracle(t)
	verdicts := map[wiretest.Verdict]int{}
	for range bodies {
		body := wiretest.Mutate(random)
		verdict, err := checkNewPlant(o, body)
		if err != nil {
			t.Errorf("%q (seed %d): %v", body, seed, err)
		}
		verdicts[verdict]++
	}
	for _, v := range []wiretest.Verdict{wiretest.NotIJSON, wiretest.NotObject, wiretest.Invalid, wiretest.Valid} {
		if verdicts[v] < 10 {
			t.Errorf("only %d of the bodies are %v", verdicts[v], v)
		}
	}
	t.Logf("%d bodies: %v", bodies, verdicts)
}

func TestDecoderHandlesEveryBody(t *testing.T) {
	distinct := map[string]bool{}
	for _, body := range wiretest.Bodies {
		distinct[body.Text] = true
		got, err := decodeNewPlant([]byte(body.Text))
		if code, _ := errors.AsType[plantstore.Code](err); code != body.Code || got != body.Plant {
			t.Errorf("%.200q: got %.200v, %v; want %.200v, %v", body.Text, got, err, body.Plant, body.Code)
		}
	}
	if len(distinct) < 200 {
		t.Errorf("there are %d bodies, want at least 200", len(distinct))
	}
}

// An oracle that agreed with everything would be worthless.
func TestOracleHandlesEveryBody(t *testing.T) {
	o := wiretest.NewOracle(t)
	for _, body := range wiretest.Bodies {
		var failed error
		if body.Code != 0 {
			failed = body.Code
		}
		want, err := wiretest.VerdictOf(failed)
		if got, plant := o.NewPlant([]byte(body.Text)); got != want || plant != body.Plant || err != nil {
			t.Errorf("%.200q: got %v, %v; want %v, %v", body.Text, got, plant, want, body.Plant)
		}
	}
}

func TestErrorNamesEveryProblemAndWhereJSONEnds(t *testing.T) {
	for body, want := range map[string]string{
		``:                              `the body is empty: send a JSON object`,
		" \n":                           `the body is empty: send a JSON object`,
		`{`:                             `not JSON: unexpected end at byte 1`,
		`{"id":1,"name":"a"} {}`:        `not JSON: unexpected data after the value, which ends at byte 19`,
		`{"id":1,"id":2,"name":"a"}`:    `not JSON: duplicate member "id" at byte 8`,
		`[]`:                            `not a JSON object: got an array`,
		`{}`:                            `"id" is missing: send an integer; "name" is missing: send a string`,
		`{"tag":1,"id":true,"name":[]}`: `"tag" must be a string, got a number; "id" must be an integer, got a boolean; "name" must be a string, got an array`,
		`{"id":1.5,"name":null}`:        `"id" must be an integer, got 1.5; "name" must be a string, got null`,
		`{"id":1e19,"name":{}}`:         `"id" must be from -9223372036854775808 to 9223372036854775807, got 1e19; "name" must be a string, got an object`,
		`{"id":"` + strings.Repeat("7", 500) + `","name":1` + strings.Repeat("7", 500) + `}`: `"id" must be an integer, got a string; "name" must be a string, got a number`,
		`{"id":` + strings.Repeat("7", 500) + `,"name":""}`:                                  `"id" must be from -9223372036854775808 to 9223372036854775807, got ` + strings.Repeat("7", 40) + `…`,
	} {
		if _, err := decodeNewPlant([]byte(body)); err == nil || err.Error() != want {
			t.Errorf("%.60q: got %v, want %s", body, err, want)
		}
	}
}

func TestArrayOfPlantsIsWholeOrAnError(t *testing.T) {
	plants := []plantstore.StoredPlant{{Plant: plantstore.Plant{ID: -1, Name: "a"}}, {Plant: plantstore.Plant{ID: 2, Name: "\x00", Tag: plantstore.NewTag("")}}}
	for n, body := range []string{`[]`, `[{"id":-1,"name":"a"}]`, `[{"id":-1,"name":"a"},{"id":2,"name":"\u0000","tag":""}]`} {
		if got, err := wire.DecodeStored([]byte(body)); err != nil || !slices.Equal(got, plants[:n]) {
			t.Errorf("%s: got %v, %v; want %v", body, got, err, plants[:n])
		}
		for end := range body {
			if got, err := wire.DecodeStored([]byte(body[:end])); err == nil {
				t.Errorf("%s: got %v", body[:end], got)
			}
		}
	}
	for _, body := range []string{`{"id":1,"name":"a"}`, `null`, `[1]`, `[{"id":1}]`, `[{"id":1,"name":"a"}]]`, `[] []`, `[{"id":1,"name":"a"},]`} {
		if got, err := wire.DecodeStored([]byte(body)); err == nil {
			t.Errorf("%s: got %v", body, got)
		}
	}
}

func TestPlantReaderReadsUntilTheStreamEnds(t *testing.T) {
	const lines = `{"id":1,"name":"a"}` + "\n" + `{"id":2,"name":"b","tag":"c"}` + "\n"
	want := []plantstore.Plant{{ID: 1, Name: "a"}, {ID: 2, Name: "b", Tag: plantstore.NewTag("c")}}
	read := func(text string) ([]plantstore.Plant, error) {
		r := wire.NewPlantReader(strings.NewReader(text))
		var plants []plantstore.Plant
		for {
			plant, err := r.Next()
			if err != nil {
				return plants, err
			}
			plants = append(plants, plant.Plant)
		}
	}
	if got, err := read(lines); err != io.EOF || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, cut := range []string{lines[:len(lines)-5], lines + `{"id":3}`, lines + "x"} {
		if got, err := read(cut); err == io.EOF || len(got) > len(want) {
			t.Errorf("%q: got %v, %v; want an error", cut, got, err)
		}
	}
}

func TestInvalidUTF8IsNotEncoded(t *testing.T) {
	for _, plant := range []plantstore.Plant{{Name: "a\xff"}, {Tag: plantstore.NewTag("\xc3(")}} {
		_, newErr := wire.AppendNewPlant(nil, plant)
		_, err := wire.AppendPlant(nil, plant)
		for _, err := range []error{newErr, err} {
			if !errors.Is(err, plantstore.ErrNotJSON) || !strings.Contains(err.Error(), "must be valid UTF-8") {
				t.Errorf("%q: %v, want ErrNotJSON", plant, err)
			}
		}
	}
}

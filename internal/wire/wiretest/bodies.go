// Package wiretest has request bodies that are hard to decode, and an [Oracle] that
// decides about any body without the code of package wire. It is for tests only.
package wiretest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"plantstore"
)

// Body is the body of a createPlant request, and what a decoder must make of it.
type Body struct {
	Text  string
	Code  plantstore.Code  // 0 for a NewPlant
	Plant plantstore.Plant // the NewPlant
}

// Bodies are the bodies that are hard to decode.
var Bodies = slices.Concat(
	integerBodies(),
	numberBodies(),
	textBodies(),
	fieldBodies(),
	memberBodies(),
	duplicateBodies(),
	otherValueBodies(),
	brokenBodies(),
	brokenTextBodies(),
	truncatedBodies(),
)

func accepted(text string, plant plantstore.Plant) Body { return Body{Text: text, Plant: plant} }

func refused(code plantstore.Code, texts ...string) []Body {
	var bodies []Body
	for _, text := range texts {
		bodies = append(bodies, Body{Text: text, Code: code})
	}
	return bodies
}

func fern(id plantstore.ID) plantstore.Plant { return plantstore.Plant{ID: id, Name: "Fern"} }

func taggedFern(tag string) plantstore.Plant {
	return plantstore.Plant{ID: 1, Name: "Fern", Tag: plantstore.NewTag(tag)}
}

// withID returns a body with the id written like this.
func withID(number string) string { return `{"id":` + number + `,"name":"Fern"}` }

// withTag returns a body with the value as its tag.
func withTag(value string) string { return `{"id":1,"name":"Fern","tag":` + value + `}` }

// withMembers returns a valid body with these members first.
func withMembers(members string) string { return `{` + members + `,"id":1,"name":"Fern"}` }

// integerBodies have ids that are integers, however they are written.
func integerBodies() []Body {
	const greatest, least = 9223372036854775807, -9223372036854775808
	var bodies []Body
	for _, tt := range []struct {
		number string
		id     plantstore.ID
	}{
		{"0", 0},
		{"-0", 0},
		{"0.0", 0},
		{"-0.0", 0},
		{"0e0", 0},
		{"0E-0", 0},
		{"-0e+0", 0},
		{"0e999999999", 0},
		{"0e-999999999", 0},
		{"-0.000e99999999999999999999", 0},
		{"0.000000000000000000000000000000", 0},
		{"1", 1},
		{"-1", -1},
		{"1.0", 1},
		{"-1.0", -1},
		{"1.000000000000000000000000000000", 1},
		{"1e0", 1},
		{"1e00000000000000000000000000000", 1},
		{"1E+00", 1},
		{"1e-0", 1},
		{"10e-1", 1},
		{"100e-2", 1},
		{"0.1e1", 1},
		{"0.01e2", 1},
		{"0.000000000000000000001e21", 1},
		{"1000000000000000000000000000000e-30", 1},
		{"1e2", 100},
		{"1E2", 100},
		{"1e+2", 100},
		{"1.5e1", 15},
		{"1.50e1", 15},
		{"15.00e0", 15},
		{"1.25e2", 125},
		{"-12.5e1", -125},
		{"120", 120},
		{"120e-1", 12},
		{"1e18", 1000000000000000000},
		{"9007199254740991", 9007199254740991},
		{"9007199254740992", 9007199254740992},
		{"9007199254740993", 9007199254740993},
		{"9007199254740993.0", 9007199254740993},
		{"900719925474099.3e1", 9007199254740993},
		{"-9007199254740993", -9007199254740993},
		{"9223372036854775806", greatest - 1},
		{"9223372036854775807", greatest},
		{"9223372036854775807.0", greatest},
		{"9223372036854775807e0", greatest},
		{"92233720368547758070e-1", greatest},
		{"9.223372036854775807e18", greatest},
		{"0.9223372036854775807e19", greatest},
		{"9223372036854775807000000000000000000000e-21", greatest},
		{"-9223372036854775807", least + 1},
		{"-9223372036854775808", least},
		{"-9223372036854775808.00", least},
		{"-9.223372036854775808e18", least},
		{"-0.0000009223372036854775808E+25", least},
		{"1" + strings.Repeat("0", 400) + "e-400", 1},
		{"0." + strings.Repeat("0", 399) + "1e400", 1},
		{"7." + strings.Repeat("0", 2000), 7},
	} {
		bodies = append(bodies, accepted(withID(tt.number), fern(tt.id)))
	}
	return bodies
}

// numberBodies have ids that are not in int64: integers outside it, other numbers,
// and text that is not a JSON number.
func numberBodies() []Body {
	var bodies []Body
	for _, number := range []string{
		"9223372036854775808", "9223372036854775808.0", "9.223372036854775808e18", "9223372036854775809",
		"-9223372036854775809", "-9223372036854775809.0", "-9.223372036854775809e18",
		"9999999999999999999", "-9999999999999999999", "10000000000000000000", "1e19", "-1e19", "0.1e20",
		"18446744073709551615", "18446744073709551616", "18446744073709551617", "36893488147419103233",
		"1e20", "1e308", "1e309", "1e400", "-1e400", "1e999999999", "-1e999999999", "1E+999999999",
		"1e9223372036854775807", "1e9223372036854775808", "1e18446744073709551616", "1e99999999999999999999999999",
		"0.1e999999999", "123456789012345678901234567890", strings.Repeat("9", 1000),
	} {
		bodies = append(bodies, refused(plantstore.ErrRange, withID(number))...)
	}
	for _, number := range []string{
		"1.5", "-1.5", "0.1", "-0.1", "0.5", "1e-1", "15e-1", "1.25e1", "12e-1", "1e-400", "-1e-400", "1e-999999999",
		"1e-99999999999999999999999999", "9007199254740992.5", "9007199254740993.5", "9223372036854775807.5",
		"9223372036854775808.5", "-9223372036854775808.5", "1.0000000000000000000000000000001",
		"0.99999999999999999999999999999999", "0.0000000000000000000000000000000000000001", "4.9e-324", "2.5e-324", "1e-1074",
	} {
		bodies = append(bodies, refused(plantstore.ErrType, withID(number))...)
	}
	for _, number := range []string{
		"00", "01", "-01", "+1", "-", "--1", "- 1", ".5", "-.5", "1.", "1.e2", "1e", "1e+", "1e-", "1E", "1e1.5", "1ee2", "e1",
		"1 e2", "1 0", "1_000", "1,000", "0x1", "0b1", "0o7", "1n", "1L", "1f", "NaN", "-NaN", "Infinity", "-Infinity", "∞", "１", "١",
	} {
		bodies = append(bodies, refused(plantstore.ErrNotJSON, withID(number))...)
	}
	return bodies
}

// textBodies have names and tags of any Unicode text.
func textBodies() []Body {
	var bodies []Body
	for _, tt := range []struct{ quoted, text string }{
		{`""`, ""},
		{`" "`, " "},
		{`"null"`, "null"},
		{`"Fern"`, "Fern"},
		{`"\u0046\u0065\u0072\u006e"`, "Fern"},
		{`"\u0000"`, "\x00"},
		{`"\u0000\u0000x\u0000"`, "\x00\x00x\x00"},
		{`"\b\f\n\r\t"`, "\b\f\n\r\t"},
		{`"\"\\\/"`, `"\/`},
		{`"\u0022\u005c\u002F"`, `"\/`},
		{`"/"`, "/"},
		{`"\\u0041"`, `\u0041`},
		{`"\\ud800"`, `\ud800`},
		{`"\\\\"`, `\\`},
		{`"\u001f"`, "\x1f"},
		{"\"\x7f\"", "\x7f"},
		{"\"\u0080\u009f\"", "\u0080\u009f"},
		{`"Ä"`, "Ä"},
		{`"A\u0308"`, "A\u0308"},
		{`"\u00e9"`, "é"},
		{`"\u00E9"`, "é"},
		{`"竹"`, "竹"},
		{`"🌱"`, "🌱"},
		{`"\ud83c\udf31"`, "🌱"},
		{`"\uD83C\uDF31"`, "🌱"},
		{`"\ud800\udc00"`, "\U00010000"},
		{`"\udbff\udfff"`, "\U0010FFFF"},
		{`"x\ud83c\udf31\ud83c\udf31y"`, "x🌱🌱y"},
		{`"👩‍🌾"`, "👩‍🌾"},
		{"\"\U0010FFFF\"", "\U0010FFFF"},
		{`"\ud7ff\ue000"`, "\ud7ff\ue000"},
		{`"\uffff\ufffe"`, "\uffff\ufffe"},
		{`"\ufffd"`, "\ufffd"},
		{"\"\ufffd\"", "\ufffd"},
		{`"\ufeff"`, "\ufeff"},
		{"\"\ufeffFern\"", "\ufeffFern"},
		{"\"\u2028\u2029\"", "\u2028\u2029"},
		{"\"\u202eנרת\"", "\u202eנרת"},
		{`"<script>&amp;'"`, `<script>&amp;'`},
		{`"'; DROP TABLE plants; --"`, `'; DROP TABLE plants; --`},
		{`"%00%s{{.}}$1"`, `%00%s{{.}}$1`},
		{`"` + strings.Repeat("f", 5000) + `"`, strings.Repeat("f", 5000)},
		{`"` + strings.Repeat(`\u00e9`, 1000) + `"`, strings.Repeat("é", 1000)},
	} {
		bodies = append(
			bodies,
			accepted(`{"id":1,"name":`+tt.quoted+`}`, plantstore.Plant{ID: 1, Name: tt.text}),
			accepted(withTag(tt.quoted), taggedFern(tt.text)),
		)
	}
	return bodies
}

// fieldBodies lack a field or have one of the wrong type.
func fieldBodies() []Body {
	var bodies []Body
	for _, value := range []string{`null`, `true`, `false`, `[]`, `[1]`, `{}`, `{"id":1}`, `["Fern"]`} {
		bodies = append(bodies, refused(plantstore.ErrType, withID(value), `{"id":1,"name":`+value+`}`, withTag(value))...)
	}
	for _, value := range []string{`0`, `1`, `-1.5`, `1e999999999`} {
		bodies = append(bodies, refused(plantstore.ErrType, `{"id":1,"name":`+value+`}`, withTag(value))...)
	}
	for _, value := range []string{`"1"`, `""`, `"0x1"`, `"1.0"`} {
		bodies = append(bodies, refused(plantstore.ErrType, withID(value))...)
	}
	return slices.Concat(
		bodies,
		refused(
			plantstore.ErrMissing,
			`{}`, ` { } `, `{"id":1}`, `{"name":"Fern"}`, `{"tag":"fern"}`, `{"id":1,"tag":"fern"}`, `{"name":"Fern","tag":"fern"}`,
			`{"x":{"id":1,"name":"Fern"}}`,
			`{"ID":1,"name":"Fern"}`, `{"Id":1,"name":"Fern"}`, `{"id":1,"Name":"Fern"}`, `{"id":1,"NAME":"Fern"}`,
			`{" id":1,"name":"Fern"}`, `{"id":1,"name ":"Fern"}`, `{"id\u0000":1,"name":"Fern"}`, `{"id":1,"\u0000name":"Fern"}`,
			`{"\\id":1,"name":"Fern"}`, `{"ıd":1,"name":"Fern"}`, `{"id":1,"nаme":"Fern"}`, `{"ｉｄ":1,"name":"Fern"}`,
			`{"id":1,"name\ufeff":"Fern"}`, `{"":1}`, `{"\"id\"":1,"name":"Fern"}`,
		),
		// The code is that of the first problem. Missing fields come last.
		refused(plantstore.ErrType, `{"id":"1","name":1}`, `{"id":null,"name":null,"tag":null}`, `{"name":1}`, `{"tag":1}`, `{"id":1.5}`, `{"tag":null,"id":1e99,"name":"Fern"}`),
		refused(plantstore.ErrRange, `{"id":1e99}`, `{"id":1e99,"name":1}`, `{"id":-1e99,"tag":null,"name":null}`),
	)
}

// memberBodies have unknown members, or known ones in an unusual order or notation.
func memberBodies() []Body {
	bodies := []Body{
		accepted("{\"id\":1,\"name\":\"Fern\"}", fern(1)),
		accepted(" \t\r\n{ \t\r\n\"id\" \t\r\n: \t\r\n1 \t\r\n, \t\r\n\"name\" \t\r\n: \t\r\n\"Fern\" \t\r\n} \t\r\n", fern(1)),
		accepted("{\"id\":1,\"name\":\"Fern\"}"+strings.Repeat("\n", 5000), fern(1)),
		accepted(strings.Repeat(" ", 5000)+"{\"id\":1,\"name\":\"Fern\"}", fern(1)),
		accepted(`{"name":"Fern","id":1}`, fern(1)),
		accepted(`{"tag":"fern","name":"Fern","id":1}`, taggedFern("fern")),
		accepted(`{"\u0069\u0064":1,"name":"Fern"}`, fern(1)),
		accepted(`{"i\u0064":1,"n\u0061me":"Fern","\u0074ag":"fern"}`, taggedFern("fern")),
		accepted(`{"\u0069\u0044":2,"id":1,"name":"Fern"}`, fern(1)),
	}
	for _, members := range []string{
		`"x":1`, `"":0`, `"x":null`, `"x":true`, `"x":""`, `"x":[]`, `"x":{}`, `"x":[[[[]]],{"y":[{}]}]`,
		`"x":1e999999999`, `"x":-1.5e-999999999`, `"x":[1e400,1e-400]`, `"x":` + strings.Repeat("1", 1000), `"x":"\u0000"`,
		`"ID":"2","Id":null,"iD":[]`, `"Name":1`, `"TAG":null`, `"Tag":1,"tAg":2`, `"id ":null`, `"\u0000":1`,
		`"x":{"id":"2","name":null,"tag":0}`, `"x":{"a":1},"y":{"a":1}`, `"x":[{"a":1},{"a":1}]`,
		`"__proto__":{"tag":"x"}`, `"constructor":null`, `"$ref":"#"`, `"type":"object","required":["x"]`,
		`"😀":1`, `"\ud83d\ude00":1`, `"a":1,"A":2,"á":3,"a\u0301":4`, `"error":40001,"message":"no"`,
		`"x":` + strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100),
		`"x":` + strings.Repeat(`{"x":`, 100) + `0` + strings.Repeat(`}`, 100),
	} {
		bodies = append(bodies, accepted(withMembers(members), fern(1)))
	}
	return bodies
}

func duplicateBodies() []Body {
	return refused(
		plantstore.ErrNotJSON,
		`{"id":1,"id":1,"name":"Fern"}`, `{"id":1,"id":2,"name":"Fern"}`, `{"id":1,"name":"Fern","id":1}`,
		`{"id":1,"name":"Fern","name":"Fern"}`, `{"id":1,"name":"Fern","name":"Oak"}`, `{"id":1,"name":"Fern","name":null}`,
		`{"id":1,"name":"Fern","tag":"a","tag":"a"}`, `{"id":1,"name":"Fern","tag":null,"tag":"a"}`,
		`{"id":1,"\u0069d":1,"name":"Fern"}`, `{"na\u006de":"Fern","id":1,"name":"Fern"}`,
		`{"id":1,"name":"Fern","\u0074ag":"a","t\u0061g":"a"}`,
		`{"x":1,"x":1,"id":1,"name":"Fern"}`, `{"x":1,"id":1,"name":"Fern","x":2}`, `{"":1,"":1,"id":1,"name":"Fern"}`,
		`{"x":{"a":1,"a":1},"id":1,"name":"Fern"}`, `{"x":[{"a":1,"a":1}],"id":1,"name":"Fern"}`,
		`{"x":{"y":{"\u0061":1,"a":1}},"id":1,"name":"Fern"}`, `{"\u0000":1,"\u0000":1,"id":1,"name":"Fern"}`,
		`{"🌱":1,"\ud83c\udf31":1,"id":1,"name":"Fern"}`, `{"id":{"a":1,"a":1},"name":"Fern"}`,
		`{"id":1,"name":{"a":1,"a":1}}`, `{"id":1,"name":"Fern","tag":{"a":1,"a":1}}`, `[{"a":1,"a":1}]`, `{"x":1,"x":1}`,
	)
}

// otherValueBodies are JSON values other than objects.
func otherValueBodies() []Body {
	return refused(
		plantstore.ErrNotObject,
		`null`, `true`, `false`, `0`, `-0`, `1.5`, `1e999999999`, `""`, `"Fern"`, `"{}"`, `"\u0000"`, `[]`, `[[]]`, ` [ ] `, `[{}]`,
		`[{"id":1,"name":"Fern"}]`, `["id",1,"name","Fern"]`, `"{\"id\":1,\"name\":\"Fern\"}"`,
	)
}

// brokenBodies are not JSON.
func brokenBodies() []Body {
	const body = `{"id":1,"name":"Fern"}`
	return refused(
		plantstore.ErrNotJSON,
		"", " ", "\n", "\t \r\n", "\x00", "{", "}", "[", "]", `"`, ",", ":", "-", "nul", "NULL", "True", "undefined", "id",
		`{"id":1,"name":"Fern",}`, `{,"id":1,"name":"Fern"}`, `{"id":1,,"name":"Fern"}`, `{"id":1 "name":"Fern"}`, `{"id" 1,"name":"Fern"}`,
		`{"id"::1,"name":"Fern"}`, `{"id":,"name":"Fern"}`, `{"id","name":"Fern"}`, `{"id":1;"name":"Fern"}`, `{id:1,name:"Fern"}`,
		`{'id':1,'name':'Fern'}`, `{"id":1,"name":Fern}`, `{1:1,"id":1,"name":"Fern"}`, `{null:1,"id":1,"name":"Fern"}`,
		`{[]:1,"id":1,"name":"Fern"}`, `{"id"=1,"name"="Fern"}`, `("id":1)`, `id=1&name=Fern`, `<plant id="1"/>`, "id: 1\nname: Fern",
		`{"id":1,"name":"Fern"`, `"id":1,"name":"Fern"}`, `{"id":1,"name":"Fern"]`, `[{"id":1,"name":"Fern"}`, `{"id":1,"name":"Fern","x":[}`,
		`{"id":1,"name":"Fern","x":[1,]}`, `{"id":1,"name":"Fern","x":[,1]}`, `{"id":1,"name":"Fern","x":[1 2]}`, `{"id":1,"name":"Fern","x":01}`,
		`{"id":1,"name":"Fern","x":nul}`, `{"id":1,"name":"Fern","x":tru}`, `{"id":1,"name":"Fern","x":falsey}`,
		`{"id":1,/**/"name":"Fern"}`, "{\"id\":1,//\n\"name\":\"Fern\"}", "#\n"+body, "// fern\n"+body,
		body+body, body+" "+body, body+"\n"+body, body+"}", body+"]", body+",", body+"x", body+"0", body+"null", body+"\x00", body+"//", body+`"`,
		"\ufeff"+body, body+"\ufeff", "\u00a0"+body, "\v"+body, "\f"+body, body+"\x1a", "\x1e"+body, ")]}',\n"+body,
		"{\"id\":1,\"name\":\"Fern\"\u2003}", "{\x00\"id\":1,\"name\":\"Fern\"}",
		"\xff\xfe{\x00}\x00", "\x00{\x00}", "\x1f\x8b\x08\x00\x00\x00\x00\x00", `1 2`, `[] []`, `null null`, `"a" "b"`, `{} {}`, `{},`,
		// The syntax matters more than what is wrong with a field.
		`{"id":"1","name":null`, `{"id":"1"}}`, `{"id":1.5,"id":1}`, `{"name":1,]`,
	)
}

// brokenTextBodies have strings that are not valid Unicode.
func brokenTextBodies() []Body {
	var bodies []Body
	for _, text := range []string{
		// Unpaired surrogates.
		`\ud800`, `\udfff`, `\uDBFF`, `\udc00`, `\ud83c`, `\ud83cx`, `x\udf31`, `\udf31\ud83c`, `\ud83c\ud83c\udf31`, `\ud83c\u0041`,
		`\ud83c\n`, `\ud83c\\udf31`, `\ud83c\udf31\udf31`, `\ud83c \udf31`, `\ud83c\uD83C`, `\ud800\ue000`, `\\ufffd\ud800`,
		// Invalid escapes.
		`\`, `\x41`, `\a`, `\v`, `\0`, `\'`, `\U00000041`, `\u`, `\u0`, `\u00`, `\u004`, `\u004g`, `\u{41}`, `\u 041`, `\u+041`, `\N`, "\\\n", "\\\x00",
		// Characters that must be escaped.
		"\x00", "\x01", "\x1f", "\n", "\r", "\t", "a\x00b",
		// Invalid UTF-8: lone bytes, overlong forms, surrogates, beyond U+10FFFF, Latin-1.
		"\x80", "\xbf", "\xff", "\xfe", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x80\x80\x80", "\xed\xa0\x80", "\xed\xbf\xbf",
		"\xed\xa0\xbd\xed\xb8\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x8c", "caf\xe9", "\xc3(",
	} {
		bodies = append(bodies, refused(plantstore.ErrNotJSON, `{"id":1,"name":"`+text+`"}`)...)
	}
	for _, body := range []string{
		`{"id":1,"name":"Fern","tag":"\ud800"}`, "{\"id\":1,\"name\":\"Fern\",\"tag\":\"\xff\"}", `{"id":1,"name":"Fern","\ud800":1}`,
		"{\"id\":1,\"name\":\"Fern\",\"\xff\":1}", `{"id":1,"name":"Fern","x":"\ud800"}`, "{\"id\":1,\"name\":\"Fern\",\"x\":[\"\xff\"]}",
		`{"id":1,"name":"Fern","x":{"y":["\udc00"]}}`, "{\"id\":1,\"name\":\"Fern\"}\xff", "\xff{\"id\":1,\"name\":\"Fern\"}", `"\ud800"`, "\"\xff\"", `["\udc00"]`,
	} {
		bodies = append(bodies, refused(plantstore.ErrNotJSON, body)...)
	}
	return bodies
}

// truncatedBodies end after each byte of a valid body.
func truncatedBodies() []Body {
	const body = `{"id":-1.5e1,"name":"\ud83c\udf31","tag":"竹","x":[true,null]}`
	var bodies []Body
	for i := range len(body) {
		bodies = append(bodies, Body{Text: body[:i], Code: plantstore.ErrNotJSON})
	}
	return bodies
}

// EdgeCases are bodies that are hard only because of the size of a buffer, the depth
// of a value or the length of a number.
func EdgeCases() []string {
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	var all []string
	for _, length := range []int{62, 63, 64, 65, 510, 512, 514, 4094, 4096, 4098} {
		// The end of the name, of an escape and of a rune at each place near the end
		// of a buffer.
		all = append(all, `{"id":1,"name":"`+strings.Repeat("x", length-17)+`"}`,
			`{"name":"`+strings.Repeat("x", length-9)+`\ud83c\udf31","id":1}`,
			`{"name":"`+strings.Repeat("x", length-10)+`🌱","id":1,"tag":"\u0000"}`,
			strings.Repeat(" ", length)+`{"id":1,"name":"x"}`+strings.Repeat("\n", length))
	}
	for _, levels := range []int{9_998, 9_999, 10_000, 10_001} {
		all = append(all, `{"id":1,"name":"x","more":`+nested(levels)+`}`, nested(levels), strings.Repeat("[", levels))
	}
	for _, digits := range []int{17, 18, 19, 20, 400, 4000} {
		zeros := strings.Repeat("0", digits)
		for _, number := range []string{
			"1" + zeros, "1" + zeros + "e-" + strconv.Itoa(digits), "0." + zeros + "1e" + strconv.Itoa(digits+1), "-0." + zeros, "1." + zeros, "1." + zeros + "1",
			"9223372036854775807." + zeros, "9223372036854775808" + zeros + "e-" + strconv.Itoa(digits), "-9223372036854775808" + zeros + "E-0" + strconv.Itoa(digits), "1e-" + zeros, "1e+" + zeros + "5",
		} {
			all = append(all, withID(number))
		}
	}
	var members strings.Builder
	for i := range 300 {
		fmt.Fprintf(&members, `"m%d":%d,`, i, i)
	}
	return append(all, "{"+members.String()+`"id":1,"name":"x"}`, "{"+members.String()+`"m299":0,"id":1,"name":"x"}`,
		`{"ID":1,"Id":2,"NAME":"x","id":3,"name":"y"}`, `{"\u006eame":"a","id":1}`, `{"\u006eame":"a","name":"b","id":1}`, `{"ta\u0067":null,"name":"b","id":1}`,
		`{"id":1,"name":"x"}{"id":1,"name":"x"}`, "\ufeff"+`{"id":1,"name":"x"}`, `{"id":1,"name":"x"}`+"\x00", "\x1e"+`{"id":1,"name":"x"}`+"\n", `{"":{"":{"":1}},"id":1,"name":""}`)
}

// Mutate returns one of the Bodies with a few pieces of it changed.
func Mutate(random *rand.Rand) []byte {
	pick := func() []byte { return []byte(Bodies[random.IntN(len(Bodies))].Text) }
	pieces := []string{
		`{`, `}`, `[`, `]`, `:`, `,`, `"`, `\`, `\u`, `\ud83c`, `\udf31`, `\u0000`, `\\`, `e`, `E-`, `.`, `-`, `0`, `1`, `9`, ` `, "\n", "\x00", "\xff", "é",
		`null`, `true`, `"id"`, `"name"`, `"tag"`, `"\u0069d"`, `"id":1,`, `,"name":"x"`, `"tag":"",`, `9223372036854775807`, `e99999`, `{"id":1,"name":"x"}`,
	}
	body := pick()
	for range random.IntN(4) {
		from := random.IntN(len(body) + 1)
		to := min(from+random.IntN(4), len(body))
		piece := []byte(pieces[random.IntN(len(pieces))])
		switch random.IntN(5) {
		case 0:
			to = from
		case 1:
			piece = nil
		case 2:
			piece = pick()
		case 3:
			piece = bytes.Clone(body[from:to])
			to = from
		}
		body = slices.Replace(body, from, to, piece...)
	}
	return body
}

package abuse

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
)

// Two parsers could disagree about where each request ends, and a create follows it.
// If the first is refused, the connection must be closed, and nothing after it may be
// treated as a request.
func TestRequestsWithAmbiguousFramingHideNothing(t *testing.T) {
	s := harness.Start(t)
	const (
		post = "POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + harness.Token + "\r\nContent-Type: application/json\r\n"
		get  = "GET /healthz HTTP/1.1\r\nHost: x\r\n"
		one  = `{"id":1,"name":"1"}` // 19 bytes, in hex 13
		two  = "13\r\n" + one + "\r\n0\r\n\r\n"
	)
	for i, tt := range []struct {
		name, request string
		// want are the statuses of the responses before that to the create that follows,
		// and next says that this one has a response too.
		want string
		next bool
	}{
		{"chunked", post + "Transfer-Encoding: chunked\r\n\r\n" + two, "200", false},
		{"of a length", post + "Content-Length: 19\r\n\r\n" + one, "200", true},
		// These are read as chunks, whatever the length says, and the connection is
		// closed, as RFC 9112 requires. net/http does not show the length, so chunks
		// alone are enough for that.
		{"length and chunks", post + "Content-Length: 19\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "200", false},
		{"chunks and length", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + two, "200", false},
		{"length 0 and chunks", post + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "200", false},
		{"invalid length and chunks", post + "Content-Length: x\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "400", false},
		{"two lengths", post + "Content-Length: 19\r\nContent-Length: 20\r\n\r\n" + one, "400", false},
		{"two lengths, one of them 0", post + "Content-Length: 19\r\nContent-Length: 0\r\n\r\n" + one, "400", false},
		{"the same length twice", post + "Content-Length: 19\r\nContent-Length: 19\r\n\r\n" + one, "200", true},
		{"a list of lengths", post + "Content-Length: 19, 19\r\n\r\n" + one, "400", false},
		{"length with a plus", post + "Content-Length: +19\r\n\r\n" + one, "400", false},
		{"length below 0", post + "Content-Length: -19\r\n\r\n" + one, "400", false},
		{"length in hex", post + "Content-Length: 0x13\r\n\r\n" + one, "400", false},
		{"length beyond 64 bits", post + "Content-Length: 18446744073709551635\r\n\r\n" + one, "400", false},
		{"empty length", post + "Content-Length:\r\n\r\n" + one, "400", false},
		{"length with a space inside", post + "Content-Length: 1 9\r\n\r\n" + one, "400", false},
		{"xchunked", post + "Transfer-Encoding: xchunked\r\n\r\n" + two, "501", false},
		{"xchunked and a length", post + "Content-Length: 19\r\nTransfer-Encoding: xchunked\r\n\r\n" + one, "501", false},
		{"identity", post + "Transfer-Encoding: identity\r\nContent-Length: 19\r\n\r\n" + one, "501", false},
		{"gzip, chunked", post + "Transfer-Encoding: gzip, chunked\r\n\r\n" + two, "501", false},
		{"chunked, identity", post + "Transfer-Encoding: chunked, identity\r\n\r\n" + two, "501", false},
		{"chunked twice", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "501", false},
		{"chunked and then identity", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + two, "501", false},
		{"quoted chunked", post + "Transfer-Encoding: \"chunked\"\r\n\r\n" + two, "501", false},
		{"chunked with a vertical tab", post + "Transfer-Encoding: \vchunked\r\n\r\n" + two, "400", false},
		{"Chunked", post + "transfer-encoding: Chunked\r\n\r\n" + two, "200", false},
		{"empty encoding", post + "Transfer-Encoding:\r\nContent-Length: 19\r\n\r\n" + one, "501", false},
		{"space before the colon of a length", post + "Content-Length : 19\r\n\r\n" + one, "400", false},
		{"space before the colon of an encoding", post + "Transfer-Encoding : chunked\r\n\r\n" + two, "400", false},
		{"tab before the colon", post + "Transfer-Encoding\t: chunked\r\n\r\n" + two, "400", false},
		{"space before a name", "POST /plants HTTP/1.1\r\n Host: x\r\nContent-Length: 19\r\n\r\n" + one, "400", false},
		{"folded length", post + "Content-Length:\r\n 19\r\n\r\n" + one, "200", true},
		{"folded encoding", post + "Transfer-Encoding:\r\n chunked\r\n\r\n" + two, "200", false},
		{"folded away encoding", post + "X: y\r\n Transfer-Encoding: chunked\r\nContent-Length: 19\r\n\r\n" + one, "200", true},
		{"line without a colon", post + "Content-Length\r\n\r\n" + one, "400", false},
		{"empty name", post + ": 19\r\n\r\n" + one, "400", false},
		{"underscore", post + "Content_Length: 4\r\nContent-Length: 19\r\n\r\n" + one, "200", true},
		{"bare LF", strings.ReplaceAll(post, "\r\n", "\n") + "Content-Length: 19\n\n" + one, "200", true},
		{"bare LF inside a header", post + "X: y\nContent-Length: 19\r\n\r\n" + one, "200", true},
		{"CR without LF", post + "X: y\rContent-Length: 19\r\n\r\n" + one, "400", false},
		{"CR without LF at the end", post + "Content-Length: 19\r\r\n\r\n" + one, "400", false},
		{"NUL in a value", post + "X: y\x00z\r\nContent-Length: 19\r\n\r\n" + one, "400", false},
		{"NUL in a name", post + "X\x00Y: z\r\nContent-Length: 19\r\n\r\n" + one, "400", false},
		{"NUL in the target", "GET /heal\x00thz HTTP/1.1\r\nHost: x\r\n\r\n", "400", false},
		{"byte beyond ASCII in a name", post + "Content-Length\xa0: 19\r\n\r\n" + one, "400", false},
		{"chunk size beyond 64 bits", post + "Transfer-Encoding: chunked\r\n\r\n10000000000000013\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size below 0", post + "Transfer-Encoding: chunked\r\n\r\n-13\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size with a plus", post + "Transfer-Encoding: chunked\r\n\r\n+13\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size with 0x", post + "Transfer-Encoding: chunked\r\n\r\n0x13\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size with an underscore", post + "Transfer-Encoding: chunked\r\n\r\n1_3\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size after a space", post + "Transfer-Encoding: chunked\r\n\r\n 13\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"empty chunk size", post + "Transfer-Encoding: chunked\r\n\r\n\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk larger than its size", post + "Transfer-Encoding: chunked\r\n\r\n12\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk smaller than its size", post + "Transfer-Encoding: chunked\r\n\r\n14\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk size that ends with a bare LF", post + "Transfer-Encoding: chunked\r\n\r\n13\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk that ends with a bare LF", post + "Transfer-Encoding: chunked\r\n\r\n13\r\n" + one + "\n0\r\n\r\n", "400", false},
		{"chunk extension", post + "Transfer-Encoding: chunked\r\n\r\n13;a=b\r\n" + one + "\r\n0\r\n\r\n", "200", false},
		{"chunk extension of garbage", post + "Transfer-Encoding: chunked\r\n\r\n13;\x00;;=\"\r\n" + one + "\r\n0\r\n\r\n", "200", false},
		{"chunk extension with a bare LF", post + "Transfer-Encoding: chunked\r\n\r\n13;a\nb\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"chunk extension with a bare CR", post + "Transfer-Encoding: chunked\r\n\r\n13;a\rb\r\n" + one + "\r\n0\r\n\r\n", "400", false},
		{"trailer with a length", post + "Transfer-Encoding: chunked\r\n\r\n13\r\n" + one + "\r\n0\r\nContent-Length: 4\r\n\r\n", "200", false},
		{"HTTP/1.0 with chunks", strings.Replace(post, "1.1", "1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n" + two, "400", false},
		{"HTTP/1.0 with chunks, kept alive", strings.Replace(post, "1.1", "1.0", 1) + "Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + two, "400 400", false},
		{"HTTP/1.0 with a length and chunks, kept alive", strings.Replace(post, "1.1", "1.0", 1) + "Connection: keep-alive\r\nContent-Length: 19\r\nTransfer-Encoding: chunked\r\n\r\n" + one, "200", false},
		{"HTTP/1.2", strings.Replace(post, "1.1", "1.2", 1) + "Content-Length: 19\r\n\r\n" + one, "200", true},
		{"HTTP/2.0", strings.Replace(post, "1.1", "2.0", 1) + "Content-Length: 19\r\n\r\n" + one, "505", false},
		{"HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "404", false},
		{"HTTP/0.9", "GET /healthz\r\n", "400", false},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", "400", false},
		{"two hosts", get + "Host: y\r\n\r\n", "400", false},
		{"absolute target", strings.Replace(post, "/plants", "http://x/plants", 1) + "Content-Length: 19\r\n\r\n" + one, "200", true},
		{"absolute target elsewhere", strings.Replace(post, "/plants", "http://elsewhere/plants", 1) + "Content-Length: 19\r\n\r\n" + one, "200", true},
		{"CONNECT", "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", "404", true},
		{"space in the target", "GET /healthz /x HTTP/1.1\r\nHost: x\r\n\r\n", "400", false},
		{"two spaces in the line", "GET  /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "400", false},
		{"body of a GET", get + "Content-Length: 19\r\n\r\n" + one, "200", true},
		{"chunked body of a GET", get + "Transfer-Encoding: chunked\r\n\r\n" + two, "200", false},
		{"create as the body of a GET", get + "Content-Length: FOLLOWING\r\n\r\n", "200", false},
		{"create as the body of a request without a token", "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Length: FOLLOWING\r\n\r\n", "401", false},
		{"create as the body of a body that is too large", post + "Content-Length: 1048577\r\n\r\n", "413", false},
		{"create in place of a body that was not requested", post + "Content-Length: 1048577\r\nExpect: 100-continue\r\n\r\n", "413", false},
		{"create in place of a small body that was not requested", "POST /plants HTTP/1.1\r\nHost: x\r\nContent-Length: 19\r\nExpect: 100-continue\r\n\r\n", "401", false},
		{"upgrade", get + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "200", true},
		{"empty lines before", "\r\n\r\n" + get + "\r\n", "400", false},
		{"create after the end of the connection", get + "Connection: close\r\n\r\n", "200", false},
	} {
		id := plantstore.ID(1000 + i)
		following := rawRequest("POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"following"}`, id))
		request := strings.Replace(tt.request, "FOLLOWING", strconv.Itoa(len(following)), 1)
		statuses, closes := exchange(t, s.Addr, request+following)
		want, status := tt.want, 404
		if tt.next {
			want, status = want+" 200", 200
		}
		if statuses != want {
			t.Errorf("%s: got %s, want %s", tt.name, statuses, want)
		}
		if got, _ := s.Call(harness.Token, "GET", fmt.Sprint("/plants/", id), ""); got != status {
			t.Errorf("%s: getting the plant of the following create: got %d, want %d", tt.name, got, status)
		}
		if !tt.next && !closes && !strings.Contains(tt.request, "FOLLOWING") {
			t.Errorf("%s: the connection is not closed", tt.name)
		}
	}
}

// exchange sends the bytes and returns the statuses of all responses, and whether the last
// one announces that the connection is closed.
func exchange(t *testing.T, addr, request string) (statuses string, closes bool) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	var all []string
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return strings.Join(all, " "), closes
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		all, closes = append(all, strconv.Itoa(res.StatusCode)), res.Close
	}
}

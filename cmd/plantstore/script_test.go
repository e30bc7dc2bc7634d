package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){"plantstore": leaklessMain})
}

// leakless runs the tests and fails if a goroutine is left over.
type leakless struct{ *testing.M }

func (m leakless) Run() int { return withoutLeak(pgtest.Main(m.M)) }

// leaklessMain is what the scripts run: main, but it fails if a goroutine is left over,
// which the end of the process would hide.
func leaklessMain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(withoutLeak(code))
}

// withoutLeak returns the code, or exitLeak if goroutines are left over. Those of idle
// HTTP connections may be.
func withoutLeak(code int) int {
	err := testenv.Leaks(
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitLeak
	}
	return code
}

// exitLeak is an exit code that no script wants.
const exitLeak = 100

// timeout is how long a script waits for what should happen immediately.
const timeout = 3 * time.Minute

// TestScripts runs what a user could type. In addition to testscript's own commands,
// the scripts have:
//
//	start [NAME=VALUE]... PROGRAM [ARG]...
//	    Start a server. Its output goes to server.out, its log to server.log.
//	wait-ready
//	    Wait until the server is ready. Sets $ADDR to its host and port and $URL to
//	    the URL of the API there.
//	wait-log REGEXP
//	    Wait for a line of the log.
//	signal TERM|INT|HUP
//	    Send the server a signal.
//	insist TERM|INT
//	    Send the server a signal again and again until it has exited.
//	wait-exit CODE
//	    Wait until the server has exited with the code, or -1 for by a signal.
//	terminate
//	    signal TERM and wait-exit 0.
//	http STATUS METHOD URL [BODY]
//	    Send a request with the token in $TOKEN, if there is one, and fail unless
//	    the response has the status. Its body is stdout, its header stderr.
//	http-until STATUS METHOD URL [BODY]
//	    Send the request again until the response has the status.
//	paste STATUS FILE [OLD NEW]...
//	    Send the request of the curl line in the file, with every OLD replaced.
//	begin-request METHOD URL BODY
//	    Send a request without its body, and wait until the server reads that.
//	finish-request STATUS
//	    Send the body, and fail unless the response has the status.
//	capture NAME [REGEXP]
//	    Set the variable to the last command's stdout, or to what the expression's
//	    group finds in it.
//	exits CODE PROGRAM [ARG]...
//	    Run a program, and fail unless it exits with the code.
//	exits-until CODE PROGRAM [ARG]...
//	    Run the program again until it exits with the code.
//	set-schema FILE N
//	    Make the store's file look as if a newer version had written it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			s := new(script)
			env.Values[scriptKey{}] = s
			env.Setenv("GORACE", "atexit_sleep_ms=0") // or every command would last a second longer
			env.Setenv("GOGC", "off")                 // a process does not live long enough
			env.Defer(s.cleanUp)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"start":          command((*script).start),
			"wait-ready":     command((*script).waitReady),
			"wait-log":       command((*script).waitLog),
			"signal":         command((*script).signal),
			"insist":         command((*script).insist),
			"wait-exit":      command((*script).waitExit),
			"terminate":      command((*script).terminate),
			"http":           command((*script).http),
			"http-until":     command((*script).httpUntil),
			"paste":          command((*script).paste),
			"begin-request":  command((*script).beginRequest),
			"finish-request": command((*script).finishRequest),
			"capture":        command((*script).capture),
			"exits":          command((*script).exits),
			"exits-until":    command((*script).exitsUntil),
			"set-schema":     command((*script).setSchema),
		},
	})
}

// script is the state of a script.
type script struct {
	server  *process
	held    net.Conn // a request without its body
	heldFor string   // the body
}

type scriptKey struct{}

// command returns a method as a command of scripts.
func command(f func(*script, *testscript.TestScript, []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command cannot be negated")
		}
		ts.Check(f(ts.Value(scriptKey{}).(*script), ts, args))
	}
}

var errArguments = errors.New("wrong number of arguments")

func (s *script) cleanUp() {
	if s.held != nil {
		s.held.Close()
	}
	if s.server != nil {
		s.server.cmd.Process.Kill() // does nothing if it has exited
		<-s.server.exited
	}
}

// process is a running server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has exited and its log is complete

	mu   sync.Mutex // guards what follows
	log  bytes.Buffer
	file *os.File      // holds the log too, for the script
	news chan struct{} // closed when the log has grown
}

// Write receives the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(b)
	close(p.news)
	p.news = make(chan struct{})
	return p.file.Write(b)
}

// await waits until the expression matches in the log, and returns the match.
func (p *process) await(pattern string) (string, error) {
	line, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return "", err
	}
	expired := time.After(timeout)
	for over := false; ; {
		p.mu.Lock()
		log, news := p.log.String(), p.news
		p.mu.Unlock()
		if found := line.FindString(log); found != "" {
			return found, nil
		}
		if over {
			return "", fmt.Errorf("the log does not contain %s:\n%s", pattern, log)
		}
		select {
		case <-news:
		case <-p.exited:
			over = true
		case <-expired:
			over = true
		}
	}
}

func (s *script) start(ts *testscript.TestScript, args []string) error {
	if s.server != nil {
		return errors.New("a server is running")
	}
	var environ []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GORACE"} {
		environ = append(environ, name+"="+ts.Getenv(name))
	}
	for len(args) > 0 && strings.Contains(args[0], "=") {
		environ, args = append(environ, args[0]), args[1:]
	}
	if len(args) == 0 {
		return errArguments
	}
	out, err := os.Create(ts.MkAbs("server.out"))
	if err != nil {
		return err
	}
	defer out.Close()
	log, err := os.Create(ts.MkAbs("server.log"))
	if err != nil {
		return err
	}
	p := &process{cmd: exec.Command(args[0], args[1:]...), exited: make(chan struct{}), file: log, news: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = environ, ts.MkAbs("."), out, p
	if err := p.cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	s.server = p
	go func() {
		p.cmd.Wait() // waitExit looks at the state
		log.Close()
		close(p.exited)
	}()
	return nil
}

func (s *script) waitReady(ts *testscript.TestScript, _ []string) error {
	line, err := s.server.await(`^\{.*"msg":"serving".*\}$`)
	if err != nil {
		return err
	}
	var serving struct{ Addr, URL string }
	if err := json.Unmarshal([]byte(line), &serving); err != nil {
		return err
	}
	base, err := url.Parse(serving.URL)
	if err != nil {
		return err
	}
	ts.Setenv("ADDR", serving.Addr)
	ts.Setenv("URL", "http://"+serving.Addr+strings.TrimRight(base.Path, "/"))
	return s.httpUntil(ts, []string{"200", "GET", "http://" + serving.Addr + "/readyz"})
}

func (s *script) waitLog(_ *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errArguments
	}
	_, err := s.server.await(args[0])
	return err
}

func (s *script) signal(_ *testscript.TestScript, args []string) error {
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP}
	if len(args) != 1 || signals[args[0]] == 0 {
		return errArguments
	}
	return s.server.cmd.Process.Signal(signals[args[0]])
}

func (s *script) insist(ts *testscript.TestScript, args []string) error {
	expired, again := time.After(timeout), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-s.server.exited:
			return nil
		case <-expired:
			return errors.New("the server does not exit")
		case <-again.C:
		}
		if err := s.signal(ts, args); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
	}
}

func (s *script) waitExit(ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errArguments
	}
	select {
	case <-s.server.exited:
	case <-time.After(timeout):
		return errors.New("the server does not exit")
	}
	state := s.server.cmd.ProcessState
	s.server = nil
	if code := strconv.Itoa(state.ExitCode()); code != args[0] {
		return fmt.Errorf("the server exited with %s, want %s:\n%s", state, args[0], ts.ReadFile("server.log"))
	}
	return nil
}

func (s *script) terminate(ts *testscript.TestScript, _ []string) error {
	if err := s.signal(ts, []string{"TERM"}); err != nil {
		return err
	}
	return s.waitExit(ts, []string{"0"})
}

func (s *script) http(ts *testscript.TestScript, args []string) error {
	r, err := newRequest(ts, args)
	if err != nil {
		return err
	}
	return send(ts, r, args[0])
}

func (s *script) httpUntil(ts *testscript.TestScript, args []string) error {
	for start := time.Now(); ; {
		err := s.http(ts, args)
		if err == nil || time.Since(start) > timeout {
			return err
		}
	}
}

// newRequest parses the arguments of http.
func newRequest(ts *testscript.TestScript, args []string) (*http.Request, error) {
	if len(args) != 3 && len(args) != 4 {
		return nil, errArguments
	}
	r, err := http.NewRequest(args[1], args[2], strings.NewReader(strings.Join(args[3:], "")))
	if err != nil {
		return nil, err
	}
	if len(args) == 4 {
		r.Header.Set("Content-Type", "application/json")
	}
	if token := ts.Getenv("TOKEN"); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r, nil
}

// web keeps no connection, so that requests are independent.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout}

func send(ts *testscript.TestScript, r *http.Request, status string) error {
	response, err := web.Do(r)
	if err != nil {
		return err
	}
	return show(ts, response, status)
}

// show gives a response to the script, and fails if it has another status.
func show(ts *testscript.TestScript, response *http.Response, status string) error {
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if got := strconv.Itoa(response.StatusCode); got != status {
		return fmt.Errorf("the status is %s, want %s: %s", got, status, body)
	}
	ts.Stdout().Write(body)
	return response.Header.Write(ts.Stderr())
}

func (s *script) paste(ts *testscript.TestScript, args []string) error {
	if len(args) < 2 || len(args)%2 != 0 {
		return errArguments
	}
	line := regexp.MustCompile(`(?m)^ *curl .*$`).FindString(ts.ReadFile(args[1]))
	r, err := parseCurl(strings.NewReplacer(args[2:]...).Replace(line))
	if err != nil {
		return err
	}
	return send(ts, r, args[0])
}

// parseCurl parses a command line of curl with the options -H and -d, quoted as in a
// shell.
func parseCurl(line string) (*http.Request, error) {
	var words []string
	for _, quoted := range regexp.MustCompile(`'[^']*'|[^' ]+`).FindAllString(line, -1) {
		words = append(words, strings.Trim(quoted, "'"))
	}
	header := http.Header{}
	var body, target string
	for i := 1; i < len(words); i++ {
		switch words[i] {
		case "-H":
			i++
			name, value, _ := strings.Cut(words[i], ": ")
			header.Add(name, value)
		case "-d":
			i++
			body = words[i]
		default:
			target += words[i]
		}
	}
	r, err := http.NewRequest("POST", target, strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the line %q: %w", line, err)
	}
	r.Header = header
	return r, nil
}

// beginRequest sends Expect, so that the server says when it reads the body.
func (s *script) beginRequest(ts *testscript.TestScript, args []string) error {
	r, err := newRequest(ts, append([]string{""}, args...))
	if err != nil {
		return err
	}
	s.heldFor = args[2]
	if s.held, err = net.Dial("tcp", r.URL.Host); err != nil {
		return err
	}
	if err := s.held.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	fmt.Fprintf(s.held, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n",
		r.Method, r.URL.Path, r.URL.Host, len(s.heldFor))
	if err := r.Header.Write(s.held); err != nil {
		return err
	}
	if _, err := io.WriteString(s.held, "\r\n"); err != nil {
		return err
	}
	const wanted = "HTTP/1.1 100 Continue\r\n\r\n"
	got := make([]byte, len(wanted))
	if _, err := io.ReadFull(s.held, got); err != nil || string(got) != wanted {
		return fmt.Errorf("the server does not read the body: %q, %v", got, err)
	}
	return nil
}

func (s *script) finishRequest(ts *testscript.TestScript, args []string) error {
	if len(args) != 1 || s.held == nil {
		return errArguments
	}
	defer s.held.Close()
	if _, err := io.WriteString(s.held, s.heldFor); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(s.held), nil)
	if err != nil {
		return err
	}
	return show(ts, response, args[0])
}

func (s *script) capture(ts *testscript.TestScript, args []string) error {
	if len(args) != 1 && len(args) != 2 {
		return errArguments
	}
	text := ts.ReadFile("stdout")
	if len(args) == 2 {
		wanted, err := regexp.Compile("(?m)" + args[1])
		if err != nil {
			return err
		}
		found := wanted.FindStringSubmatch(text)
		if len(found) != 2 {
			return fmt.Errorf("%s does not match", args[1])
		}
		text = found[1]
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return errors.New("there is nothing to capture")
	}
	ts.Setenv(args[0], text)
	return nil
}

func (s *script) exits(ts *testscript.TestScript, args []string) error {
	if len(args) < 2 {
		return errArguments
	}
	code := 0
	err := ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		return err
	}
	if strconv.Itoa(code) != args[0] {
		return fmt.Errorf("exit code %d, want %s", code, args[0])
	}
	return nil
}

func (s *script) exitsUntil(ts *testscript.TestScript, args []string) error {
	for start := time.Now(); ; {
		err := s.exits(ts, args)
		if err == nil || time.Since(start) > timeout {
			return err
		}
	}
}

// setSchema sets SQLite's user_version, at byte 60 of the file, which must not be open.
func (s *script) setSchema(ts *testscript.TestScript, args []string) error {
	if len(args) != 2 {
		return errArguments
	}
	version, err := strconv.ParseUint(args[1], 10, 32)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(binary.BigEndian.AppendUint32(nil, uint32(version)), 60)
	return err
}

// A variable that is set for a whole session must not change what one call does.
func TestOnlyConnectionAndServerSettingsHaveVariables(t *testing.T) {
	help := helpOf(t)
	_, list, found := strings.Cut(help, "\nCommands:\n")
	commands := regexp.MustCompile(`(?m)^  ([a-z ]*[a-z])  `).FindAllStringSubmatch(list, -1)
	if !found || len(commands) < 5 {
		t.Fatalf("the help lists %d commands:\n%s", len(commands), help)
	}
	for _, c := range commands {
		page := helpOf(t, strings.Fields(c[1])...)
		_, flags, found := strings.Cut(page, "\nFlags:\n")
		if !found || !strings.HasPrefix(page, "Usage: plantstore "+c[1]) {
			t.Errorf("the help of %s:\n%s", c[1], page)
		}
		for _, flag := range regexp.MustCompile(`(?m)^ +(?:-.,)? *--([a-z-]+)`).FindAllStringSubmatch(flags, -1) {
			if flag[1] == "help" || flag[1] == "print-config" {
				continue
			}
			// An old name of the variable may follow.
			variable := "($PLANTSTORE_" + strings.ToUpper(strings.ReplaceAll(flag[1], "-", "_"))
			has := strings.Contains(flags, variable+")") || strings.Contains(flags, variable+",")
			choosesStore := flag[1] == "db" && c[1] != "export" // which calls a server without it
			if want := c[1] == "serve" || c[1] == "healthcheck" && flag[1] != "timeout" || flag[1] == "config" || choosesStore || flag[1] == "url"; has != want {
				t.Errorf("the help of %s names the variable of --%s, %s): %t, want %t", c[1], flag[1], variable, has, want)
			}
		}
	}
}

func helpOf(t *testing.T, command ...string) string {
	t.Helper()
	var out, problems bytes.Buffer
	code := run(t.Context(), append(command, "--help"), streams{strings.NewReader(""), &out, &problems})
	if code != exitOK || problems.Len() > 0 {
		t.Fatalf("%q --help: exit code %d, %s", command, code, &problems)
	}
	return out.String()
}

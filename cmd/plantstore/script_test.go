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
)

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){"plantstore": leaklessMain})
}

// leakless runs the tests and fails if they leave a goroutine behind.
type leakless struct{ *testing.M }

func (m leakless) Run() int { return withoutLeak(m.M.Run()) }

// leaklessMain is what the scripts run: main, and a failure if the command leaves a
// goroutine behind, which the end of the process would hide.
func leaklessMain() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	os.Exit(withoutLeak(code))
}

// withoutLeak returns the code, or another one if goroutines are left. Those of the
// client's connections may be: they end with the process.
func withoutLeak(code int) int {
	if err := goleak.Find(
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitLeak
	}
	return code
}

// exitLeak is an exit code that no script wants.
const exitLeak = 100

// patience is how long a script waits for what should come at once.
const patience = time.Minute

// TestScripts runs what a user could type. Beside testscript's own commands the
// scripts have:
//
//	start [NAME=VALUE]... PROGRAM [ARG]...
//	    Start a server. Its output goes to server.out, its log to server.log.
//	wait-ready
//	    Wait until the server says that it serves and is ready. Sets $ADDR to
//	    where it listens and $URL to where the API is found there.
//	wait-log REGEXP
//	    Wait for a line of the log.
//	signal TERM|INT
//	    Send the server a signal.
//	insist TERM|INT
//	    Send the server a signal again and again until it has exited.
//	wait-exit CODE
//	    Wait until the server has exited with the code, or -1 for by a signal.
//	terminate
//	    signal TERM and wait-exit 0.
//	http STATUS METHOD URL [BODY]
//	    Send a request with the token in $TOKEN, if there is one, and fail unless
//	    the answer has the status. The answer's body is stdout, its header stderr.
//	http-until STATUS METHOD URL [BODY]
//	    Send the request again until the answer has the status.
//	paste STATUS FILE [OLD NEW]...
//	    Send the request of the curl line in the file, with every OLD replaced.
//	begin-request METHOD URL BODY
//	    Send a request up to its body, and wait until the server reads that.
//	finish-request STATUS
//	    Send the body, and fail unless the answer has the status.
//	capture NAME [REGEXP]
//	    Set the variable to the last command's stdout, or to what the expression's
//	    group finds in it.
//	exits CODE PROGRAM [ARG]...
//	    Run a program, and fail unless it exits with the code.
//	next-schema FILE
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
			"next-schema":    command((*script).nextSchema),
		},
	})
}

// script is what a script has under way.
type script struct {
	server  *process
	held    net.Conn // a request without its body
	heldFor string   // the body
}

type scriptKey struct{}

// command makes a method a command of scripts.
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
		s.server.cmd.Process.Kill() // does nothing to one that has exited
		<-s.server.exited
	}
}

// process is a server under way.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has exited and its log is whole

	mu   sync.Mutex // guards what follows
	log  bytes.Buffer
	file *os.File      // holds the log too, for the script
	news chan struct{} // closed when the log has grown
}

// Write takes what the server logs.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(b)
	close(p.news)
	p.news = make(chan struct{})
	return p.file.Write(b)
}

// await returns what the expression finds in the log, as soon as it does.
func (p *process) await(pattern string) (string, error) {
	line, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return "", err
	}
	timeout := time.After(patience)
	for over := false; ; {
		p.mu.Lock()
		log, news := p.log.String(), p.news
		p.mu.Unlock()
		if found := line.FindString(log); found != "" {
			return found, nil
		}
		if over {
			return "", fmt.Errorf("the log does not hold %s:\n%s", pattern, log)
		}
		select {
		case <-news:
		case <-p.exited:
			over = true
		case <-timeout:
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
		p.cmd.Wait() // its state is looked at by waitExit
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
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT}
	if len(args) != 1 || signals[args[0]] == 0 {
		return errArguments
	}
	return s.server.cmd.Process.Signal(signals[args[0]])
}

func (s *script) insist(ts *testscript.TestScript, args []string) error {
	timeout, again := time.After(patience), time.NewTicker(10*time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-s.server.exited:
			return nil
		case <-timeout:
			return errors.New("the server does not end")
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
	case <-time.After(patience):
		return errors.New("the server does not end")
	}
	state := s.server.cmd.ProcessState
	s.server = nil
	if code := strconv.Itoa(state.ExitCode()); code != args[0] {
		return fmt.Errorf("the server ended with %s, want %s:\n%s", state, args[0], ts.ReadFile("server.log"))
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
		if err == nil || time.Since(start) > patience {
			return err
		}
	}
}

// newRequest reads the arguments of http.
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

// browser keeps no connection, so that every request stands alone.
var browser = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

func send(ts *testscript.TestScript, r *http.Request, status string) error {
	answer, err := browser.Do(r)
	if err != nil {
		return err
	}
	return judge(ts, answer, status)
}

// judge shows an answer to the script, and refuses one with another status.
func judge(ts *testscript.TestScript, answer *http.Response, status string) error {
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if got := strconv.Itoa(answer.StatusCode); got != status {
		return fmt.Errorf("the status is %s, want %s: %s", got, status, body)
	}
	ts.Stdout().Write(body)
	return answer.Header.Write(ts.Stderr())
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

// parseCurl reads a command line of curl with the options -H and -d, quoted as in
// a shell.
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

// beginRequest asks the server to say when it wants the body, which is when the
// handler reads it.
func (s *script) beginRequest(ts *testscript.TestScript, args []string) error {
	r, err := newRequest(ts, append([]string{""}, args...))
	if err != nil {
		return err
	}
	s.heldFor = args[2]
	if s.held, err = net.Dial("tcp", r.URL.Host); err != nil {
		return err
	}
	if err := s.held.SetDeadline(time.Now().Add(patience)); err != nil {
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
		return fmt.Errorf("the server does not want the body: %q, %v", got, err)
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
	answer, err := http.ReadResponse(bufio.NewReader(s.held), nil)
	if err != nil {
		return err
	}
	return judge(ts, answer, args[0])
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
			return fmt.Errorf("%s finds nothing", args[1])
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

// nextSchema adds 1 to SQLite's user_version, which lies at byte 60 of a file that
// nobody has open.
func (s *script) nextSchema(ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return errArguments
	}
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var version [4]byte
	if _, err := f.ReadAt(version[:], 60); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(version[:], binary.BigEndian.Uint32(version[:])+1)
	_, err = f.WriteAt(version[:], 60)
	return err
}

// Every command is asked for its help, those that are added later too.
func TestHelpNamesTheVariableOfEveryFlag(t *testing.T) {
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
			variable := "$PLANTSTORE_" + strings.ToUpper(strings.ReplaceAll(flag[1], "-", "_")) + ")"
			if flag[1] != "help" && !strings.Contains(flags, variable) {
				t.Errorf("the help of %s does not name the variable of --%s, (%s", c[1], flag[1], variable)
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

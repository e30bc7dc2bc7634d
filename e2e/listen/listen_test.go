package listen_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// newCA returns a certificate authority.
var newCA = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1000), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{PrivateKey: key, Leaf: template, Certificate: [][]byte{der}}
})

// pair is a certificate for 127.0.0.1, signed by newCA, in the files of a server.
type pair struct {
	cert, key string // paths
	roots     *x509.CertPool
}

// newPair writes a certificate with the serial number, which expires after at least that many
// hours. The files appear atomically, one after the other.
func newPair(t *testing.T, dir string, serial int64) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Duration(serial+1) * time.Hour),
	}
	authority := newCA()
	cert, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := pair{cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), roots: x509.NewCertPool()}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	p.roots.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]}))
	for path, text := range map[string][]byte{p.cert: chain, p.key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// startTLS runs a server with a certificate.
func startTLS(t *testing.T, p pair, flags ...string) *harness.Server {
	t.Helper()
	s := harness.Start(t, append(flags, "--tls-cert", p.cert, "--tls-key", p.key)...)
	s.API = strings.Replace(s.API, "http:", "https:", 1)
	return s
}

// trusting returns an HTTP client for a server with this certificate.
func trusting(t *testing.T, p pair, http2 bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.roots}, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func TestTLSHasHTTP2AndNoOldVersions(t *testing.T) {
	t.Parallel()
	p := newPair(t, t.TempDir(), 1)
	s := startTLS(t, p)
	for http2, want := range map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"} {
		web := trusting(t, p, http2)
		response, err := web.Get(s.API + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.Proto != want || response.StatusCode != 200 || response.TLS.Version < tls.VersionTLS12 {
			t.Errorf("got %s %s with TLS %x, want %s", response.Proto, response.Status, response.TLS.Version, want)
		}
		// A body of unknown length is not ambiguous in HTTP/2, so the connection stays.
		r, _ := http.NewRequestWithContext(t.Context(), "POST", s.API+"/plants", io.NopCloser(strings.NewReader(`{"id":1,"name":"fern"}`)))
		r.Header.Set("Authorization", "Bearer "+harness.Token)
		r.Header.Set("Content-Type", "application/json")
		if response, err = web.Do(r); err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != 200 || http2 && response.Close {
			t.Errorf("%s: got %s, closes %t", want, response.Status, response.Close)
		}
	}
	if _, err := handshake(s.Addr, &tls.Config{RootCAs: p.roots, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
	api, err := client.New(s.API, harness.Token, client.Options{HTTP: trusting(t, p, true)})
	if err != nil {
		t.Fatal(err)
	}
	events, cancel := context.WithCancel(t.Context())
	defer cancel()
	for event, err := range api.Events(events, plantstore.EventQuery{}) {
		if err != nil || event.Plant.Name != "fern" {
			t.Errorf("the first event is %v, %v", event, err)
		}
		break
	}
}

// A certificate is replaced, a token revoked and the level changed under load. Only the requests with that
// token may fail.
func TestRotationUnderLoadFailsNoRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newPair(t, dir, 1)
	s := startTLS(t, p, "--access-log")
	doomed := strings.TrimSpace(s.Command("token", "create", "--name", "doomed"))
	var sent, refused atomic.Int64
	var load sync.WaitGroup
	stop := make(chan struct{})
	for worker := range 8 {
		web := trusting(t, p, worker%2 == 0)
		token := harness.Token
		if worker == 7 {
			token = doomed
		}
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				body := fmt.Sprintf(`{"id":%d,"name":"fern"}`, worker*1_000_000+i)
				got, err := harness.Send(web, token, "POST", s.API+"/plants", body)
				switch {
				case err == nil && got.Status == 200:
					sent.Add(1)
				case err == nil && got.Status == 401 && token == doomed:
					refused.Add(1)
				default:
					t.Errorf("worker %d: %d %s, %v", worker, got.Status, got.Body, err)
					return
				}
			}
		})
	}
	for serial := int64(2); serial < 5; serial++ {
		now := newPair(t, dir, serial)
		testenv.Eventually(t, func() error { return wantSerial(s.Addr, now, serial) })
	}
	for _, level := range []string{"DEBUG", "INFO"} {
		if err := s.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, func() error {
			if !strings.Contains(s.Log(), `"msg":"the level of the log has changed","to":"`+level+`"`) {
				return errors.New("the level has not changed to " + level)
			}
			return nil
		})
	}
	testenv.Eventually(t, func() error {
		_, err := s.TryCommand("token", "revoke", "doomed") // the file may be busy
		return err
	})
	testenv.Eventually(t, func() error {
		if refused.Load() == 0 {
			return errors.New("the token is not refused")
		}
		return nil
	})
	close(stop)
	load.Wait()
	testenv.Eventually(t, func() error {
		if got, want := int64(strings.Count(s.Log(), `"operation":"createPlant"`)), sent.Load()+refused.Load(); got != want {
			return fmt.Errorf("the access log has %d requests, want %d", got, want)
		}
		return nil
	})
	t.Logf("%d requests, %d refused with the revoked token", sent.Load(), refused.Load())
	// A broken file leaves the certificate that was read before.
	last := newPair(t, dir, 9)
	testenv.Eventually(t, func() error { return wantSerial(s.Addr, last, 9) })
	if err := os.WriteFile(last.key, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, func() error {
		if !strings.Contains(s.Log(), "the old one stays") {
			return errors.New("the broken key is not in the log")
		}
		return nil
	})
	if err := wantSerial(s.Addr, last, 9); err != nil {
		t.Error(err)
	}
}

// wantSerial fails unless a new connection gets the certificate with the serial number.
func wantSerial(addr string, p pair, serial int64) error {
	cert, err := handshake(addr, &tls.Config{RootCAs: p.roots})
	if err == nil && cert.SerialNumber.Int64() != serial {
		err = fmt.Errorf("the certificate has the serial number %d, want %d", cert.SerialNumber, serial)
	}
	return err
}

func TestMetricsFollowTheCertificateInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startTLS(t, newPair(t, dir, 1))
	for serial := int64(1); serial < 4; serial++ {
		p := newPair(t, dir, serial)
		web := trusting(t, p, true)
		testenv.Eventually(t, func() error {
			cert, err := handshake(s.Addr, &tls.Config{RootCAs: p.roots})
			if err == nil && cert.SerialNumber.Int64() != serial {
				err = fmt.Errorf("the certificate %d is in use, want %d", cert.SerialNumber, serial)
			}
			if err != nil {
				return err
			}
			return wantExpiry(s, web, cert)
		})
	}
	if _, text := harness.Start(t).Call(harness.Token, "GET", "/metrics", ""); strings.Contains(text, expiryMetric) {
		t.Errorf("a server without a certificate has %s", expiryMetric)
	}
}

const expiryMetric = "plantstore_tls_certificate_expiry_timestamp_seconds"

// wantExpiry fails unless the server's metrics say when the certificate expires.
func wantExpiry(s *harness.Server, web *http.Client, cert *x509.Certificate) error {
	got, err := harness.Send(web, harness.Token, "GET", s.API+"/metrics", "")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(got.Body, "\n"+expiryMetric+" ")
	var seconds float64
	if _, err := fmt.Sscan(rest, &seconds); err != nil || int64(seconds) != cert.NotAfter.Unix() {
		return fmt.Errorf("%s is %v, %v, want %d", expiryMetric, seconds, err, cert.NotAfter.Unix())
	}
	return nil
}

func unixClient(t *testing.T, path string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func TestUnixSocketIsServedAndReplacedAfterACrash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "http.sock")
	s := harness.New(t, filepath.Join(dir, "plants.db"))
	s.Addr = "unix:" + path
	s.Run()
	web := unixClient(t, path)
	create := func(id int) {
		t.Helper()
		got, err := harness.Send(web, harness.Token, "POST", "http://localhost/plants", fmt.Sprintf(`{"id":%d,"name":"fern"}`, id))
		if err != nil || got.Status != 200 {
			t.Fatalf("got %d %s, %v", got.Status, got.Body, err)
		}
	}
	create(1)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	second := harness.New(t, filepath.Join(dir, "other.db"))
	second.Addr = "unix:" + path
	if err := second.TryRun(); err == nil || !strings.Contains(err.Error(), "is another server running?") {
		t.Errorf("a second server on the socket: %v", err)
	}
	create(2)
	s.Kill()
	web.CloseIdleConnections()
	s.Addr = "unix:" + path
	s.Run()
	create(3)
	s.Stop()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// systemd passes a socket as file 3, and hears when the server is ready, alive and
// stopping.
func TestSystemdPassesTheSocketAndIsNotified(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	messages, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Close()
	await := func(want string) {
		t.Helper()
		for buffer := make([]byte, 1024); ; {
			if err := messages.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			n, err := messages.Read(buffer)
			if err != nil {
				t.Fatalf("systemd was not told %s: %v", want, err)
			}
			if string(buffer[:n]) == want {
				return
			}
		}
	}
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := socket.Addr().String()
	file, err := socket.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	socket.Close()
	// The process has to know its own id, and file 3 must be the socket.
	wrapper := filepath.Join(dir, "wrapper")
	script := fmt.Sprintf("#!/bin/sh\nexport LISTEN_FDS=1 LISTEN_PID=$$ WATCHDOG_PID=$$ WATCHDOG_USEC=300000\nexec %s \"$@\"\n", harness.Binary())
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := harness.New(t, filepath.Join(dir, "plants.db"))
	s.Program, s.Addr, s.Files = wrapper, "192.0.2.1:1", []*os.File{file}
	s.Env = []string{"NOTIFY_SOCKET=" + filepath.Join(dir, "notify")}
	s.Run()
	file.Close()
	if s.Addr != addr {
		t.Errorf("it listens on %s, systemd passed %s", s.Addr, addr)
	}
	await("READY=1")
	for range 3 {
		await("WATCHDOG=1")
	}
	if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":1,"name":"fern"}`); status != 200 {
		t.Errorf("got %d %s", status, body)
	}
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	await("STOPPING=1")
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

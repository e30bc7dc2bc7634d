package listen_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/letsencrypt/challtestsrv"
	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// pebbleVariable makes the test binary a certificate authority. Pebble cannot be
// stopped, so it has a process of its own. The value is the port where it validates
// and the address of its name server.
const pebbleVariable = "PLANTSTORE_TEST_PEBBLE"

// certificateLifetime is how many seconds Pebble's certificates are valid. The last third is
// for the renewal, on a machine that may be busy.
const certificateLifetime = 60

// authority is a running certificate authority.
type authority struct {
	Directory string // its URL
	Trust     string // the PEM certificate of that URL
	Root      string // the PEM certificate that signs, through others, what it issues
}

// pebbleMain runs Pebble until standard input ends. Every name resolves to 127.0.0.1.
func pebbleMain(ports string) int {
	port, resolver, _ := strings.Cut(ports, " ")
	tlsPort, err := strconv.Atoi(port)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	logger := log.New(os.Stderr, "pebble: ", 0)
	names, err := challtestsrv.New(challtestsrv.Config{DNSAddrs: []string{resolver}, Log: logger})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	names.SetDefaultDNSIPv6("")
	go names.Run()
	store := db.NewMemoryStore()
	signer := ca.New(logger, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: certificateLifetime}})
	front := wfe.New(logger, store, va.New(logger, 0, tlsPort, true, resolver, store), signer, []string{"pebble.example"}, true, false, 1, 1)
	web := httptest.NewTLSServer(front.Handler())
	defer web.Close()
	if err := json.NewEncoder(os.Stdout).Encode(authority{
		Directory: web.URL + wfe.DirectoryPath,
		Trust:     string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})),
		Root:      string(signer.GetRootCert(0).PEM()),
	}); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startPebble starts a certificate authority that validates at a port of this machine.
func startPebble(t *testing.T, port string) authority {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), pebbleVariable+"="+port+" "+harness.ReserveAddr(t), "PEBBLE_VA_NOSLEEP=1")
	cmd.Stderr = t.Output()
	in, out := harness.StartPiped(t, cmd)
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill() // or it waits for the server's connections
		_ = cmd.Wait()         // it was killed
	})
	var a authority
	if err := json.NewDecoder(out).Decode(&a); err != nil {
		t.Fatalf("start Pebble: %v", err)
	}
	return a
}

func TestCertificateIsObtainedAndRenewedWithACME(t *testing.T) {
	t.Parallel()
	const name = "plants.example.com"
	dir := t.TempDir()
	s := harness.New(t, filepath.Join(dir, "plants.db"))
	_, port, _ := net.SplitHostPort(s.Addr)
	pebble := startPebble(t, port)
	trust := filepath.Join(dir, "trust.pem")
	if err := os.WriteFile(trust, []byte(pebble.Trust), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Flags = []string{"--acme-domain", name, "--acme-directory", pebble.Directory, "--acme-email", "ops@example.com"}
	s.Env = []string{"SSL_CERT_FILE=" + trust}
	s.Run()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(pebble.Root)) {
		t.Fatal("Pebble has no root")
	}
	config := &tls.Config{RootCAs: roots, ServerName: name}
	var first *x509.Certificate
	testenv.Eventually(t, func() (err error) {
		first, err = handshake(s.Addr, config)
		return err
	})
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	web := &http.Client{Transport: transport}
	s.API = strings.Replace(s.API, "http:", "https:", 1)
	inMetrics := func() error {
		now, err := handshake(s.Addr, config)
		if err != nil {
			return err
		}
		return wantExpiry(s, web, now)
	}
	testenv.Eventually(t, inMetrics)
	if !strings.Contains(s.Log(), `"url":"https://plants.example.com:`+port+`"`) {
		t.Errorf("the log has another URL:\n%s", s.Log())
	}
	if _, err := handshake(s.Addr, &tls.Config{RootCAs: roots, ServerName: "other.example.com"}); err == nil {
		t.Error("there is a certificate for another name")
	}
	// From here on, no handshake may fail.
	var renewed *x509.Certificate
	for deadline := first.NotAfter.Add(-time.Second); renewed == nil; time.Sleep(50 * time.Millisecond) {
		now, err := handshake(s.Addr, config)
		if err != nil {
			t.Fatal(err)
		}
		if now.SerialNumber.Cmp(first.SerialNumber) != 0 {
			renewed = now
		} else if time.Now().After(deadline) {
			t.Fatalf("the certificate is not renewed before it expires:\n%s", s.Log())
		}
	}
	if !renewed.NotAfter.After(first.NotAfter) {
		t.Errorf("renewed until %s, before until %s", renewed.NotAfter, first.NotAfter)
	}

	testenv.Eventually(t, inMetrics)

	// After a restart, a kept certificate is used.
	s.Stop()
	if kept, err := os.ReadDir(filepath.Join(dir, "acme")); err != nil || len(kept) < 2 {
		t.Errorf("the account and the certificate are not kept: %v, %v", kept, err)
	}
}

// handshake connects once and returns the server's certificate.
func handshake(addr string, config *tls.Config) (*x509.Certificate, error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", addr, config)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0], nil
}

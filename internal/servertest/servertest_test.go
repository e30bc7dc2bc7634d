package servertest_test

import (
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
	"plantstore/internal/tracing"
)

func TestMain(m *testing.M) { servertest.Main(m) }

var oak = plantstore.Plant{ID: 1, Name: "Oak"}

func TestServerServesEveryStore(t *testing.T) {
	servertest.OnEveryStore(t, func(t *testing.T, s *servertest.Server) {
		c := s.Client(client.Options{Retries: -1})
		if err := c.Create(t.Context(), oak); err != nil {
			t.Fatal(err)
		}
		if got := s.Plants(t); !slices.Equal(got, []plantstore.Plant{oak}) {
			t.Errorf("the store has %v, want %v", got, oak)
		}
		elm := plantstore.Plant{ID: 2, Name: "Elm"}
		s.Fill(t, elm)
		if got, err := c.Get(t.Context(), 2); err != nil || got.Plant != elm {
			t.Errorf("got %v, %v; want %v", got, err, elm)
		}
		s.Clear(t)
		if got := s.Plants(t); len(got) > 0 {
			t.Errorf("the store has %v, want nothing", got)
		}
		if !strings.Contains(s.Log.String(), `"path":"/plants/2"`) {
			t.Errorf("the log lacks a request:\n%s", s.Log)
		}
	})
}

func TestTokenHasItsScopes(t *testing.T) {
	s := servertest.Start(t, servertest.Options{BaseURL: servertest.URL("/v1"), Store: storetest.NewModel()})
	reader, err := client.New(s.URL, s.NewToken(plantstore.ScopeRead), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.CloseIdleConnections()
	if err := reader.Create(t.Context(), oak); !errors.Is(err, plantstore.ErrScope) {
		t.Errorf("got %v, want ErrScope", err)
	}
	if _, err := reader.Page(t.Context(), plantstore.Query{}); err != nil {
		t.Error(err)
	}
}

func TestServerHasTheWebPages(t *testing.T) {
	s := servertest.Launch(servertest.Options{BaseURL: servertest.URL("https://plants.example/v1")})
	defer s.Stop()
	if !strings.HasPrefix(s.URL, "http://127.0.0.1:") || !strings.HasSuffix(s.URL, "/v1") || s.BaseURL.String() != "https://plants.example/v1" {
		t.Errorf("the server is at %s, for the public %s", s.URL, s.BaseURL)
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := web.Get("http://" + s.Addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if page, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(page), `content="/v1"`) {
		t.Errorf("got %d %.300s, %v", response.StatusCode, page, err)
	}
}

// A test may have whatever plantstore serve has.
func TestServerHasTLSTracesAndALimitOfMemory(t *testing.T) {
	var traces atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { traces.Add(1) }))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tracer, err := tracing.New("test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOMAXPROCS", strconv.Itoa(runtime.GOMAXPROCS(0))) // stays
	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "")
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))

	s := servertest.Launch(servertest.Options{Certificates: servertest.Certificate(), Tracer: tracer, OwnsProcess: true})
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: servertest.Trust(), ForceAttemptHTTP2: true}}
	response, err := web.Get(s.URL + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	web.CloseIdleConnections()
	if response.ProtoMajor != 2 || response.StatusCode != http.StatusOK {
		t.Errorf("got %d over %s", response.StatusCode, response.Proto)
	}
	s.Stop()
	tracer.Close()
	if traces.Load() == 0 {
		t.Error("no span was sent")
	}
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		t.Error("the memory is not limited")
	}
}

func TestLoggedSecretIsNoticed(t *testing.T) {
	s := servertest.Launch(servertest.Options{Store: storetest.NewModel()})
	if s.HasSecret([]byte("harmless")) || !s.HasSecret([]byte("token "+s.Token)) {
		t.Error("HasSecret cannot tell a secret")
	}
	if _, err := s.Log.Write([]byte("token " + s.Token)); err != nil {
		t.Fatal(err)
	}
	s.Log.Reset()
	defer func() {
		if got := recover(); got == nil {
			t.Error("Stop does not fail")
		}
	}()
	s.Stop()
}

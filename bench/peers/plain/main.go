// Command plain is the service that an engineer writes in an hour: net/http,
// encoding/json, database/sql, and one INSERT per request.
package main

import (
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

type plant struct {
	ID   *int64  `json:"id,omitempty"`
	Name *string `json:"name"`
	Tag  *string `json:"tag,omitempty"`
}

type service struct {
	write, read *sql.DB
	tokens      map[[32]byte]bool
}

func main() {
	db := flag.String("db", "plants.db", "a file, or a postgres:// URL")
	flag.Parse()
	s := &service{tokens: map[[32]byte]bool{sha256.Sum256([]byte(os.Getenv("TOKEN"))): true}}
	if err := s.open(*db); err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /plants", s.create)
	mux.HandleFunc("GET /plants/{id}", s.get)
	mux.HandleFunc("GET /plants", s.list)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("{\"addr\":%q}\n", listener.Addr())
	log.Fatal(http.Serve(listener, s.authorised(mux)))
}

func (s *service) open(db string) error {
	var err error
	schema := "CREATE TABLE IF NOT EXISTS plants (id BIGINT PRIMARY KEY, name TEXT NOT NULL, tag TEXT)"
	if strings.HasPrefix(db, "postgres://") {
		if s.write, err = sql.Open("pgx", db); err != nil {
			return err
		}
		s.write.SetMaxOpenConns(32)
		s.write.SetMaxIdleConns(32)
		s.read = s.write
	} else {
		schema = "CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)"
		dsn := "file:" + db + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
		if s.write, err = sql.Open("sqlite", dsn); err != nil {
			return err
		}
		// SQLite has one writer at a time: more connections would only wait.
		s.write.SetMaxOpenConns(1)
		if s.read, err = sql.Open("sqlite", dsn); err != nil {
			return err
		}
		s.read.SetMaxOpenConns(8)
		s.read.SetMaxIdleConns(8)
	}
	_, err = s.write.Exec(schema)
	return err
}

func (s *service) authorised(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || !s.tokens[sha256.Sum256([]byte(token))] {
			fail(w, http.StatusUnauthorized, "unknown token")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *service) create(w http.ResponseWriter, r *http.Request) {
	var p plant
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&p)
	if err != nil || p.ID == nil || p.Name == nil {
		fail(w, http.StatusBadRequest, "not a plant")
		return
	}
	_, err = s.write.ExecContext(r.Context(), "INSERT INTO plants (id, name, tag) VALUES ($1, $2, $3)", *p.ID, *p.Name, p.Tag)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	p.ID = nil
	respond(w, http.StatusOK, p)
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, "not an id")
		return
	}
	p := plant{ID: &id}
	err = s.read.QueryRowContext(r.Context(), "SELECT name, tag FROM plants WHERE id = $1", id).Scan(&p.Name, &p.Tag)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		fail(w, http.StatusNotFound, "no such plant")
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
	default:
		respond(w, http.StatusOK, p)
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	after, _ := strconv.ParseInt(r.FormValue("after"), 10, 64)
	rows, err := s.read.QueryContext(r.Context(), "SELECT id, name, tag FROM plants WHERE id > $1 ORDER BY id LIMIT $2", after, limit)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	defer rows.Close()
	plants := []plant{}
	for rows.Next() {
		var p plant
		if err := rows.Scan(&p.ID, &p.Name, &p.Tag); err != nil {
			fail(w, http.StatusInternalServerError, err.Error())
			return
		}
		plants = append(plants, p)
	}
	if err := rows.Err(); err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	respond(w, http.StatusOK, plants)
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, status int, message string) {
	respond(w, status, map[string]any{"error": status, "message": message})
}

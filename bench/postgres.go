package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// postgres is a PostgreSQL server for one contender. It syncs every commit.
type postgres struct {
	process *process
	url     string
	port    int
}

func startPostgres(dir string) (*postgres, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		return nil, errors.Join(errors.New("PostgreSQL is not installed: apt-get install postgresql"), err)
	}
	bin, data := slices.Max(found), filepath.Join(dir, "postgres")
	attr, err := ownerOf(dir)
	if err != nil {
		return nil, err
	}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "--encoding=UTF8", "--locale=C", "--lc-ctype=C.UTF-8")
	initdb.SysProcAttr, initdb.Dir = attr, os.TempDir()
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	server := exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "shared_buffers=512MB",
		"-c", "max_wal_size=8GB", "-c", "max_connections=200")
	server.SysProcAttr, server.Dir = attr, os.TempDir()
	p, err := launch(filepath.Join(dir, "postgres.log"), server)
	if err != nil {
		return nil, err
	}
	db := &postgres{p, databaseURL(port), port}
	for range 200 {
		if _, err = db.query("SELECT 1", nil); err == nil {
			return db, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, errors.Join(err, p.failed())
}

func databaseURL(port int) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

// ownerOf changes the owner of the directory to the user that runs PostgreSQL, which
// refuses to run as root.
func ownerOf(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	for d := dir; ; d = filepath.Dir(d) {
		if info, err := os.Stat(d); err != nil || info.Mode().Perm()&0o001 != 0 {
			break
		}
		if err := os.Chmod(d, 0o711); err != nil {
			return nil, err
		}
	}
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func (db *postgres) query(text string, in io.Reader) (string, error) {
	return output(exec.Command("psql", db.arguments("-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text)...), in)
}

func (db *postgres) count() (int64, error) { return db.number("SELECT count(*) FROM plants") }

func (db *postgres) number(query string) (int64, error) {
	text, err := db.query(query, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

func (db *postgres) fill(n int) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	go func() {
		w := bufio.NewWriterSize(write, 1<<20)
		for p := range preload(n) {
			fmt.Fprintf(w, "%d\t%s\t%s\n", p.id, p.name, p.tag)
		}
		_ = w.Flush() // a COPY that fails reports that itself
		write.Close()
	}()
	_, err = db.query("COPY plants (id, name, tag) FROM STDIN", read)
	return err
}

// arguments returns the arguments that make a client program of PostgreSQL connect, and others.
func (db *postgres) arguments(others ...string) []string {
	return append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(db.port), "-U", "postgres"}, others...)
}

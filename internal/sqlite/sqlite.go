package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	lib "modernc.org/sqlite/lib"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
	"plantstore/internal/memtable"
	"plantstore/internal/rules"
)

// SQLite before 3.51.3 could corrupt a file when one connection ran a checkpoint
// while another wrote, which is what this package does. With an older version this
// does not compile. See docs/decisions/0001-sqlite-release.md.
const _ = uint(lib.SQLITE_VERSION_NUMBER - 3_051_003)

// busyTimeout is how long a connection waits for a lock of another process.
const busyTimeout = 5 * time.Second

// The sizes of the page caches, in bytes. There are many readers, and reads of 10 million plants
// are no slower than with a cache of twice the size.
const (
	writerCache = 16 << 20
	readerCache = 1 << 20
)

// Mode says what a store is opened for.
type Mode int

const (
	// Serve creates the file if it does not exist, and locks it, so that a second
	// server is refused.
	Serve Mode = iota
	// Share creates the file if it does not exist. A server may have it open.
	Share
	// Existing requires that the file exists. A server may have it open.
	Existing
)

// Store is a [plantstore.Store] in one file. [Store.Run] must run for its
// write-ahead log to stay small.
type Store struct {
	// Log, which may be replaced before the store is used, receives a record when the file
	// turns out to be damaged, and from Run one for each step of a migration. It discards
	// them by default.
	Log *slog.Logger
	// Clock, which may be replaced before Run, is that of the server.
	Clock *rules.Clock
	// GenerationLimit, which may be lowered before the store is used, is the size at which a
	// generation is frozen. Its text and its tags are in memory.
	GenerationLimit memtable.Size

	path    string
	connect func() (*sqlite.Conn, error) // opens a connection to the file
	lock    *flock.Flock                 // nil unless opened to serve
	file    *os.File                     // has the lock on the file itself
	places  []place                      // of the files that SQLite has open, if it is opened to serve
	lookups *readers                     // for single plants
	tokens  *readers                     // and webhooks
	lists   *readers                     // without a filter
	search  *readers                     // lists with one, and events
	scans   *readers
	ready   *readers // one, which waits for no others

	// broken is set when the store can no longer be trusted. It then refuses
	// everything.
	broken atomic.Pointer[error]
	index  *os.File // what forgetIndex opened; kept, because it must not be closed
	// damage is set when part of the file turns out to be unreadable.
	damage atomic.Pointer[error]

	mu    sync.Mutex // guards write, and is held during every write
	write *writer

	checkpointer *sqlite.Conn // belongs to Run

	// unflushed is what the table does not have yet, and lastSeq the last row of the
	// log that is committed. Both change only while mu is held.
	unflushed   atomic.Pointer[memtable.Unflushed]
	lastSeq     atomic.Int64
	plants      atomic.Int64 // how many there are
	checkpoints atomic.Int64 // since it was opened
	applying    atomic.Int32 // batches that are applied or wait for the mutex
	lastWrite   atomic.Int64 // when the last batch ended, in Unix nanoseconds

	// logAge and logBytes say how much of the log is kept. Its rows up to expired are older
	// than logAge. logSize is its size.
	logAge   time.Duration
	logBytes int64
	expired  atomic.Int64
	logSize  atomic.Int64

	indexNames rules.IndexMode // when there is an index of names
	searchTime time.Duration   // as the constant; tests make it shorter

	changes rules.Notifier // of rows added to the log

	// Set by Look: the file's schema, its state if it is read as one that does not change,
	// a folder to remove, and the store of which this is a copy.
	schema   int
	seen     fs.FileInfo
	temp     string
	original *Store
}

var _ plantstore.Store = (*Store)(nil)

// Open opens the store in the file at path, creates its schema, and recovers from a crash. Only
// Serve migrates a store; the other modes refuse one that would have to be migrated. A store that
// is too damaged for that is opened to serve nevertheless: it refuses everything, so that a server
// says why it is not ready instead of ending again and again. A file that is not a database is not
// opened.
func Open(path string, mode Mode) (*Store, error) { return OpenLogged(path, mode, nil) }

// OpenLogged is Open with the log of the store, which gets a record before and after each step of
// a migration: one may take a minute.
func OpenLogged(path string, mode Mode, log *slog.Logger) (*Store, error) {
	s := newStore(path)
	s.Log = cmp.Or(log, s.Log)
	err := classify(s.path, s.open(mode))
	if mode == Serve && errors.Is(err, plantstore.ErrDamaged) {
		err = withAdvice(damageAdvice, err)
		s.damage.Store(&err)
		s.broken.Store(&err) // Run logs it
		return s, nil
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// follow returns the file that a link leads to. SQLite keeps the log beside that one, and
// the lock is there, too.
func follow(path string) string {
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path
	}
	file, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	return file
}

func newStore(path string) *Store {
	path = follow(path)
	s := &Store{
		Log: slog.New(slog.DiscardHandler), Clock: rules.NewClock("server", time.Now, nil), path: path, connect: func() (*sqlite.Conn, error) { return open(path) },
		indexNames: rules.IndexAuto, searchTime: searchTime, GenerationLimit: memtable.Size{Rows: generationSize, Text: 24 << 20, TagBytes: 16 << 20},
	}
	pool := func(size int, brief bool) *readers {
		return &readers{store: s, brief: brief, inUse: make(chan struct{}, size)}
	}
	s.lookups, s.tokens = pool(maxReaders, true), pool(maxTokenReaders, true)
	s.lists, s.search, s.scans = pool(maxLists(), false), pool(maxSearches(), false), pool(maxScans, false)
	s.ready = pool(1, true)
	return s
}

func (s *Store) open(mode Mode) error {
	path := s.path
	if err := checkOrphan(path); err != nil {
		return err
	}
	if mode == Serve {
		if err := s.takeName(); err != nil {
			return err
		}
	}
	if err := createFile(path, mode); err != nil {
		return err
	}
	if err := s.openFile(mode); err != nil {
		return err
	}
	if err := s.checkLinks(); err != nil {
		return err
	}
	conn, err := s.openOwned(mode)
	if err != nil {
		return err
	}
	s.write = &writer{conn: conn, serves: mode == Serve}
	// The first read creates the log. SQLite does not report it if the log's name could not
	// be made durable, and then a power cut would lose the log and its contents.
	if err := exec(conn, "SELECT count(*) FROM sqlite_schema"); err != nil {
		return err
	}
	if err := syncDir(path); err != nil {
		return err
	}
	// A large batch touches many pages. Those that do not fit into the cache are
	// written more than once.
	if err := setCache(conn, writerCache); err != nil {
		return err
	}
	err = migrate(conn, path, mode == Serve, s.Log)
	if sqlite.ErrCode(err) == sqlite.ResultFull {
		// What need not be migrated can be read, and written as soon as the disk has room.
		if migrate(conn, path, false, s.Log) == nil {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	w := s.write
	err = errors.Join(
		w.intoLog.prepare(conn, groupSize, insertLog),
		w.intoStored.prepare(conn, 4*groupSize, insertStored), w.fromStored.prepare(conn, 4*groupSize, deleteStored),
		w.intoTagged.prepare(conn, 4*groupSize, insertTagged), w.fromTagged.prepare(conn, 4*groupSize, deleteTagged),
	)
	if err != nil {
		return err
	}
	s.unflushed.Store(&memtable.Unflushed{Active: memtable.New(0)})
	if mode == Serve {
		if err := s.load(); err != nil {
			return err
		}
	}
	if s.checkpointer, err = open(path); err != nil || mode != Serve {
		return err
	}
	// Except on Linux, SQLite has dropped the lock when it closed its first connection.
	if err := errors.Join(s.takeFile(), s.notePlaces()); err != nil {
		return err
	}
	// When a file goes away, no connection can be opened, and this one still reads. If it cannot be
	// opened now, the first read says why.
	if c, err := s.lookups.acquire(context.Background()); err == nil {
		s.lookups.release(c)
	}
	return nil
}

// Close closes all connections. The last one copies the write-ahead log into the file.
// If the store can no longer be trusted, nothing more is written: the connections are
// left to end with the process, and the next start recovers from the log.
func (s *Store) Close() error {
	if s.checkTrusted() != nil {
		return s.unlock()
	}
	if s.lock == nil && s.write != nil && !s.serverRuns() {
		// A server may have ended since, because of a failed fsync.
		if err := repeatLog(s.write.conn, s.path); err != nil {
			return fmt.Errorf("close %s: %w", s.path, err)
		}
	}
	var errs []error
	if s.isReplaced() {
		// SQLite leaves the log, and the next start would apply it to the other file.
		_, _, err := walCheckpoint(s.checkpointer, "TRUNCATE")
		errs = append(errs, err)
	}
	for _, pool := range []*readers{s.lookups, s.tokens, s.lists, s.search, s.scans, s.ready} {
		errs = append(errs, pool.Close())
	}
	if s.checkpointer != nil {
		errs = append(errs, s.checkpointer.Close())
	}
	if s.write != nil {
		errs = append(errs, s.write.conn.Close())
	}
	errs = append(errs, s.unlock(), s.unchanged())
	if s.original != nil {
		errs = append(errs, s.original.Close())
	}
	if s.temp != "" {
		errs = append(errs, os.RemoveAll(s.temp))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}

// Ready returns nil if the file can be read and the store can be trusted and is not
// known to be damaged.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.checkWritable(); err != nil {
		return err
	}
	_, err := read(ctx, s.ready, func(c *sqlite.Conn) (int64, error) { return number(c, "SELECT 1 FROM stored LIMIT 1") })
	return err
}

// createFile creates an empty file that only its owner can read, unless the file
// exists, and makes its name durable. It never opens an existing file: closing it
// would drop the locks that SQLite holds on it for this process.
func createFile(path string, mode Mode) error {
	if mode == Existing {
		_, err := os.Stat(path)
		return err
	}
	err := writeNew(path, strings.NewReader(""))
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(path)
}

// syncDir makes the name of the file at path durable.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// markUntrusted records an error after which the store cannot be trusted.
func (s *Store) markUntrusted(err error) {
	if s.broken.CompareAndSwap(nil, &err) {
		s.forgetIndex()
	}
}

// forgetIndex makes whoever uses the write-ahead log next read all of it, and copy all of it
// into the file. SQLite does so by itself, unless another process has the file open, such as
// a backup: its index of the log then says what was copied into the file before the disk
// lost it. The index has two headers of 48 bytes, and the number of pages that were copied.
//
// It ignores errors: the store is as it would be without it. The index is left open: to
// close it would drop SQLite's locks.
func (s *Store) forgetIndex() {
	var err error
	if s.index, err = os.OpenFile(s.path+"-shm", os.O_RDWR, 0); err == nil {
		_, _ = s.index.WriteAt(make([]byte, 2*48+4), 0)
	}
}

// repeatLog writes the write-ahead log once more, as it is, and syncs it. If an fsync failed
// before, the kernel may still have what the disk has lost, and no later fsync would write
// it. Then nobody must add to the log, or copy it into the file: after a power cut, what
// follows the lost part would not be found, or what was copied would be all that is left.
func repeatLog(c *sqlite.Conn, path string) (err error) {
	path += "-wal"
	if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	err = exec(c, "BEGIN IMMEDIATE") // nobody else writes to the log
	if sqlite.ErrCode(err).ToPrimary() == sqlite.ResultReadOnly {
		return nil // this process does not write to it either
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, exec(c, "ROLLBACK")) }()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(io.NewOffsetWriter(f, 0), io.NewSectionReader(f, 0, math.MaxInt64)); err != nil {
		return err
	}
	return f.Sync()
}

// checkTrusted returns why the store cannot be trusted, or nil if it can.
func (s *Store) checkTrusted() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// openOwned opens the first connection to a file. It copies the write-ahead log into the
// file and removes it, unless another process has the file open. It changes nothing in a store
// whose schema this release does not support, and nothing else in a file of another program.
func (s *Store) openOwned(mode Mode) (*sqlite.Conn, error) {
	path := s.path
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	c.SetBusyTimeout(busyTimeout)
	version, err := schemaVersion(c, path)
	if (errors.Is(err, ErrNewerSchema) || errors.Is(err, ErrOlderSchema)) && s.hasLog() {
		return nil, err // without closing it, which would copy the log
	}
	switch {
	case err == nil && version == 0 && mode == Existing:
		err = fmt.Errorf("%s has no store: %w", path, fs.ErrNotExist)
	case err == nil:
		err = configure(c)
	}
	if err == nil && (mode == Serve || !s.serverRuns()) {
		if err := repeatLog(c, path); err != nil {
			return nil, err // without closing it, which would copy the log
		}
	}
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	return open(path)
}

func open(path string) (*sqlite.Conn, error) {
	return openWith(path, sqlite.OpenReadWrite|sqlite.OpenWAL, func(c *sqlite.Conn) error { return errors.Join(configure(c), requireWAL(c)) })
}

// openWith opens a connection and sets it up.
func openWith(path string, flags sqlite.OpenFlags, setUp func(*sqlite.Conn) error) (*sqlite.Conn, error) {
	c, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	if err := setUp(c); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// requireWAL fails if the file is not in WAL mode. The driver requests it when it opens
// a connection, but does not report a failure.
func requireWAL(c *sqlite.Conn) error {
	return query(c, func(row *sqlite.Stmt) error {
		if mode := row.ColumnText(0); mode != "wal" {
			return fmt.Errorf("the journal mode is %s, want wal", mode)
		}
		return nil
	}, "PRAGMA journal_mode")
}

// The writer's settings of synchronous. With the second, a commit does not wait for the
// disk.
const (
	syncFull   = "synchronous=FULL"
	syncNormal = "synchronous=NORMAL"
)

func configure(c *sqlite.Conn) error {
	c.SetBusyTimeout(busyTimeout)
	return errors.Join(
		pragma(c, syncFull),
		// On macOS only F_FULLFSYNC reaches the disk, fsync does not.
		pragma(c, "fullfsync=1"),
		pragma(c, "checkpoint_fullfsync=1"),
		pragma(c, "wal_autocheckpoint=0"),
		pragma(c, fmt.Sprintf("journal_size_limit=%d", maxLog*pageSize)),
		pragma(c, "trusted_schema=0"),
		pragma(c, "temp_store=MEMORY"),
	)
}

// setCache sets the size of a connection's page cache, in bytes.
func setCache(c *sqlite.Conn, size int) error {
	return pragma(c, fmt.Sprintf("cache_size=-%d", size>>10))
}

func pragma(c *sqlite.Conn, text string) error {
	return sqlitex.ExecuteTransient(c, "PRAGMA "+text, nil)
}

// withConn runs f with a connection of its own, which is interrupted when ctx ends.
func (s *Store) withConn(ctx context.Context, f func(*sqlite.Conn) error) error {
	c, err := s.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	return f(c)
}

// classify wraps an error of the engine in the domain's errors.
func classify(path string, err error) error {
	if err == nil {
		return nil
	}
	switch code := sqlite.ErrCode(err); {
	case code == sqlite.ResultIOErrSHMSize:
		return fmt.Errorf("%s: %w: the disk has no room for the index of its write-ahead log: %w", path, plantstore.ErrUnavailable, err)
	case code == sqlite.ResultIOErrFsync, code == sqlite.ResultIOErrDirFsync:
		return fmt.Errorf("%s: %w: %w", path, plantstore.ErrUntrusted, err)
	case code.ToPrimary() == sqlite.ResultCorrupt:
		return fmt.Errorf("%s: %w: %w: %w", path, plantstore.ErrUnavailable, plantstore.ErrDamaged, err)
	case code.ToPrimary() == sqlite.ResultNotADB:
		return fmt.Errorf("%s is not a Plantstore store: %w", path, err)
	case code.ToPrimary() == sqlite.ResultBusy:
		return fmt.Errorf("%s is busy: %w: %w: %w", path, plantstore.ErrRetry, plantstore.ErrUnavailable, err)
	case code.ToPrimary() == sqlite.ResultFull, code.ToPrimary() == sqlite.ResultIOErr,
		code.ToPrimary() == sqlite.ResultReadOnly, code.ToPrimary() == sqlite.ResultCantOpen:
		return fmt.Errorf("%s: %w: %w", path, plantstore.ErrUnavailable, err)
	}
	return err
}

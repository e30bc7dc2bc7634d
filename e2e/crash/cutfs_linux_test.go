package crash

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"plantstore/internal/testenv"
)

// drive is a mount point for one disk after the other.
type drive struct {
	t      testing.TB
	dir    string
	disk   *disk
	server *fuse.Server // nil while no disk is mounted
	unsafe bool         // its disks do nothing on fsync
}

// newDrive returns a drive with an empty disk in it.
func newDrive(t testing.TB) *drive {
	t.Helper()
	if problem := fuseProblem(); problem != "" {
		testenv.Missing(t, problem)
	}
	d := &drive{t: t, dir: t.TempDir()}
	t.Cleanup(d.eject)
	d.insert(nil)
	return d
}

// fuseProblem returns why nothing can be mounted here, or "".
func fuseProblem() string {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return "FUSE is not available: " + err.Error()
	}
	if os.Geteuid() == 0 {
		return ""
	}
	for _, name := range []string{"fusermount3", "fusermount"} {
		if _, err := exec.LookPath(name); err == nil {
			return ""
		}
	}
	return "FUSE is not available: fusermount3 is not installed, and only root can mount without it"
}

// insert mounts a new disk with these files, all of them durable.
func (d *drive) insert(files map[string][]byte) {
	d.t.Helper()
	d.eject()
	d.disk = newDisk(files)
	d.disk.unsafe = d.unsafe
	server, err := fuse.NewServer(d.disk, d.dir, &fuse.MountOptions{
		Name: "cutfs", FsName: "cutfs",
		DirectMount:              true,
		DisableXAttrs:            true,
		ExplicitDataCacheControl: true, // only the kernel changes what it caches
	})
	if err != nil {
		d.t.Fatalf("mount: %v", err)
	}
	d.server = server
	closeDeviceOnExec(d.t)
	go server.Serve()
	if err := server.WaitMount(); err != nil {
		d.t.Fatalf("mount: %v", err)
	}
}

// closeDeviceOnExec keeps processes that the test starts from inheriting the device of a
// mount. With it open, they would wait forever if the test died.
func closeDeviceOnExec(t testing.TB) {
	t.Helper()
	const open = "/proc/self/fd"
	entries, err := os.ReadDir(open)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if to, _ := os.Readlink(filepath.Join(open, e.Name())); err == nil && to == "/dev/fuse" {
			syscall.CloseOnExec(fd)
		}
	}
}

// eject unmounts the disk. No process may have it in use.
func (d *drive) eject() {
	d.t.Helper()
	if d.server == nil {
		return
	}
	if err := d.server.Unmount(); err != nil {
		d.t.Errorf("unmount: %v", err)
	}
	d.server = nil
}

// path returns the path of the file of that name.
func (d *drive) path(name string) string { return filepath.Join(d.dir, name) }

// operation is what a disk does and can fail to do.
type operation string

const (
	opWrite    operation = "write"
	opSync     operation = "fsync"
	opSyncDir  operation = "fsync of the directory"
	opTruncate operation = "truncate"
	opCreate   operation = "create"
	opRename   operation = "rename"
	opUnlink   operation = "unlink"
	opRead     operation = "read"
)

// fault makes the n-th operation of a kind fail, once.
type fault struct {
	op     operation
	n      int // from 1
	status fuse.Status
	// persists says that the operation takes effect nevertheless.
	persists bool
}

// disk is a file system of one directory in memory. As in POSIX, an fsync of a file
// makes its content durable, and one of the directory its name. [disk.survivors] returns
// what a power cut leaves of the rest. Locks are the kernel's.
type disk struct {
	fuse.RawFileSystem // refuses the operations that are not implemented here

	released chan struct{} // closed when operations need no longer hang after the cut
	unsafe   bool          // fsync does nothing

	mu     sync.Mutex // guards what follows
	nodes  map[uint64]*node
	names  map[string]*node // as processes see them
	synced map[string]*node // as they are durable
	moves  []move           // of names, not durable yet
	counts map[operation]int
	quota  int64 // of bytes in all files, if not 0
	opened []int // for each handle, how many failures were reported to it
	// uncached says that every read of a file reaches the disk.
	uncached bool

	stalled  chan struct{} // if not nil, fsyncs wait until it is closed
	fault    *fault
	hit      string        // the file that had the fault, or the directory
	cutAfter int           // operations; negative for never
	dark     chan struct{} // closed at the cut
}

// node is one file. Its number is that of the kernel's inode.
type node struct {
	number  uint64
	content []byte   // as processes see it
	synced  []byte   // as it is durable
	changes []change // of the content, not durable yet
	// failures is how many fsyncs have failed. Linux reports each to every handle of the
	// file, at its next fsync.
	failures int
}

// change is a write, or a truncation at an offset if data is nil.
type change struct {
	at   int
	data []byte
}

// move gives a file a name, takes one away, or both.
type move struct {
	from, to string // or empty
	node     *node
}

func newDisk(files map[string][]byte) *disk {
	d := &disk{
		RawFileSystem: fuse.NewDefaultRawFileSystem(),
		released:      make(chan struct{}),
		nodes:         make(map[uint64]*node),
		names:         make(map[string]*node),
		synced:        make(map[string]*node),
		counts:        make(map[operation]int),
		cutAfter:      -1,
		dark:          make(chan struct{}),
	}
	for name, content := range files {
		n := d.newNode()
		n.content, n.synced = bytes.Clone(content), bytes.Clone(content)
		d.names[name], d.synced[name] = n, n
	}
	return d
}

// newNode returns a new file. The directory itself has the number 1.
func (d *disk) newNode() *node {
	n := &node{number: uint64(len(d.nodes)) + 2}
	d.nodes[n.number] = n
	return n
}

func (c change) apply(content []byte) []byte {
	end := c.at + len(c.data)
	if c.data == nil && end < len(content) {
		return content[:end]
	}
	if end > len(content) {
		content = slices.Grow(content, end-len(content))
		old := len(content)
		content = content[:end]
		clear(content[old:])
	}
	copy(content[c.at:], c.data)
	return content
}

func (m move) apply(names map[string]*node) {
	delete(names, m.from)
	if m.to != "" {
		names[m.to] = m.node
	}
}

func (n *node) change(c change) {
	n.content = c.apply(n.content)
	n.changes = append(n.changes, c)
}

func (d *disk) move(m move) {
	m.apply(d.names)
	d.moves = append(d.moves, m)
}

func (n *node) sync() {
	for _, c := range n.changes {
		n.synced = c.apply(n.synced)
	}
	n.changes = nil
}

func (d *disk) syncNames() {
	for _, m := range d.moves {
		m.apply(d.synced)
	}
	d.moves = nil
}

// nameOf returns a name of the file, or that it has none.
func (d *disk) nameOf(n *node) string {
	for name, other := range d.names {
		if other == n {
			return name
		}
	}
	return "(deleted)"
}

// cut cuts the power after this many more operations. From then on all of them fail; if
// frozen is set they hang until release, so that no process notices the cut.
func (d *disk) cut(after int, frozen bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cutAfter = after
	if !frozen {
		d.release()
	}
}

func (d *disk) release() { close(d.released) }

func (d *disk) isDark() bool {
	select {
	case <-d.dark:
		return true
	default:
		return false
	}
}

// alive reports whether there is power. The caller holds the mutex, which is released
// while a frozen operation waits.
func (d *disk) alive() bool {
	if !d.isDark() {
		return true
	}
	d.mu.Unlock()
	defer d.mu.Lock()
	select {
	case <-d.released:
	case <-time.After(3 * time.Minute): // a test has gone wrong
	}
	return false
}

// admit returns whether an operation takes effect, and the status for its caller.
func (d *disk) admit(op operation, file string) (happens bool, status fuse.Status) {
	if d.cutAfter == 0 && !d.isDark() {
		close(d.dark)
	}
	if !d.alive() {
		return false, fuse.EIO
	}
	if stalled := d.stalled; stalled != nil && (op == opSync || op == opSyncDir) {
		d.mu.Unlock()
		<-stalled
		d.mu.Lock()
	}
	d.cutAfter--
	d.counts[op]++
	if f := d.fault; f != nil && f.op == op && d.counts[op] == f.n {
		d.hit = file
		return f.persists, f.status
	}
	return true, fuse.OK
}

// fail makes an operation fail, counted from now. Reads are counted too: none is served
// from the kernel's cache.
func (d *disk) fail(f *fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.uncached = true
	d.fault = f
	clear(d.counts)
}

// faulted returns the name of the file that had the fault, or "".
func (d *disk) faulted() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hit
}

// limit leaves room for this many more bytes.
func (d *disk) limit(more int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.quota = d.used() + more
}

// stall makes every fsync hang until resume is called, which may be called again.
func (d *disk) stall() (resume func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stalled := make(chan struct{})
	d.stalled = stalled
	return sync.OnceFunc(func() { close(stalled) })
}

func (d *disk) unlimit() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.quota = 0
}

func (d *disk) used() (sum int64) {
	for _, n := range d.names {
		sum += int64(len(n.content))
	}
	return sum
}

// room returns how long a file may get, at most end.
func (d *disk) room(n *node, end int) int {
	grows := end - len(n.content)
	if d.quota == 0 || grows <= 0 {
		return end
	}
	return len(n.content) + min(grows, max(0, int(d.quota-d.used())))
}

// all returns the files as the next process finds them. What a failed fsync dropped is
// lost, because the kernel need not keep it in memory.
func (d *disk) all() map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := make(map[string][]byte)
	for name, n := range d.names {
		files[name] = bytes.Clone(n.synced)
		for _, c := range n.changes {
			files[name] = c.apply(files[name])
		}
	}
	return files
}

// survivors returns the files that a power cut leaves. Of what was not synced, any part
// may be there or not, whatever the order in which it was written.
func (d *disk) survivors(random *rand.Rand) map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	const none, everything, kinds = 0, 1, 5 // the others keep some of it
	kind := random.IntN(kinds)
	names := maps.Clone(d.synced)
	for _, m := range d.moves {
		if kind == everything || kind > everything && random.IntN(2) == 0 {
			m.apply(names)
		}
	}
	files := make(map[string][]byte)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		content := bytes.Clone(names[name].synced)
		for _, c := range names[name].changes {
			switch kind {
			case none:
			case everything:
				content = c.apply(content)
			default:
				content = c.applyPart(content, random)
			}
		}
		files[name] = content
	}
	return files
}

// applyPart applies a change, or nothing of it, or a torn one: a prefix, or some of its
// sectors.
func (c change) applyPart(content []byte, random *rand.Rand) []byte {
	const sector = 512
	switch random.IntN(4) {
	case 0:
		return content
	case 1:
		return c.apply(content)
	case 2:
		if c.data != nil {
			c.data = c.data[:random.IntN(len(c.data)+1)]
		}
		return c.apply(content)
	}
	if c.data == nil {
		return content
	}
	for len(c.data) > 0 {
		n := min(len(c.data), sector-c.at%sector)
		if random.IntN(2) == 0 {
			content = change{c.at, c.data[:n]}.apply(content)
		}
		c.at, c.data = c.at+n, c.data[n:]
	}
	return content
}

// The kernel calls the methods that follow.

func (d *disk) String() string { return "cutfs" }

const forever = time.Hour

// fillAttr fills in the attributes of a file, or of the directory for nil.
func fillAttr(n *node, out *fuse.Attr) {
	*out = fuse.Attr{Ino: 1, Mode: syscall.S_IFDIR | 0o700, Nlink: 2, Owner: *fuse.CurrentOwner()}
	if n != nil {
		out.Ino, out.Mode, out.Nlink, out.Size = n.number, syscall.S_IFREG|0o600, 1, uint64(len(n.content))
	}
}

func fillEntry(n *node, out *fuse.EntryOut) {
	out.NodeId, out.Generation = n.number, 1
	out.SetEntryTimeout(forever)
	out.SetAttrTimeout(forever)
	fillAttr(n, &out.Attr)
}

func (d *disk) Lookup(_ <-chan struct{}, _ *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.alive() {
		return fuse.EIO
	}
	n := d.names[name]
	if n == nil {
		return fuse.ENOENT
	}
	fillEntry(n, out)
	return fuse.OK
}

func (d *disk) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.alive() {
		return fuse.EIO
	}
	out.SetTimeout(forever)
	fillAttr(d.nodes[in.NodeId], &out.Attr)
	return fuse.OK
}

func (d *disk) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.alive() {
		return fuse.EIO
	}
	n := d.nodes[in.NodeId]
	if in.Valid&fuse.FATTR_SIZE != 0 {
		if status := d.truncate(n, int(in.Size)); status != fuse.OK {
			return status
		}
	}
	out.SetTimeout(forever)
	fillAttr(n, &out.Attr)
	return fuse.OK
}

func (d *disk) truncate(n *node, size int) fuse.Status {
	happens, status := d.admit(opTruncate, d.nameOf(n))
	if happens && d.room(n, size) < size {
		return fuse.Status(syscall.ENOSPC)
	}
	if happens {
		n.change(change{at: size})
	}
	return status
}

func (d *disk) Create(_ <-chan struct{}, _ *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	happens, status := d.admit(opCreate, name)
	if !happens {
		return status
	}
	n := d.newNode()
	d.move(move{to: name, node: n})
	fillEntry(n, &out.EntryOut)
	out.OpenFlags = d.openFlags(n)
	out.Fh = d.handle(n)
	return status
}

// handle returns a new handle of a file.
func (d *disk) handle(n *node) uint64 {
	d.opened = append(d.opened, n.failures)
	return uint64(len(d.opened) - 1)
}

func (d *disk) Unlink(_ <-chan struct{}, _ *fuse.InHeader, name string) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	happens, status := d.admit(opUnlink, name)
	if happens {
		d.move(move{from: name})
	}
	return status
}

func (d *disk) Rename(_ <-chan struct{}, _ *fuse.RenameIn, from, to string) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	happens, status := d.admit(opRename, from)
	if happens {
		d.move(move{from: from, to: to, node: d.names[from]})
	}
	return status
}

func (d *disk) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.alive() {
		return fuse.EIO
	}
	out.OpenFlags = d.openFlags(d.nodes[in.NodeId])
	out.Fh = d.handle(d.nodes[in.NodeId])
	if in.Flags&syscall.O_TRUNC != 0 {
		return d.truncate(d.nodes[in.NodeId], 0)
	}
	return fuse.OK
}

// openFlags returns whether the kernel caches a file. What SQLite maps into memory must
// be cached.
func (d *disk) openFlags(n *node) uint32 {
	if d.uncached && !strings.HasSuffix(d.nameOf(n), "-shm") {
		return fuse.FOPEN_DIRECT_IO
	}
	return fuse.FOPEN_KEEP_CACHE
}

func (d *disk) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.alive() {
		return nil, fuse.EIO
	}
	file := d.nodes[in.NodeId]
	d.counts[opRead]++
	if f := d.fault; f != nil && f.op == opRead && d.counts[opRead] == f.n {
		d.hit = d.nameOf(file)
		return nil, f.status
	}
	content := file.content
	n := copy(buf, content[min(int(in.Offset), len(content)):])
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (d *disk) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[in.NodeId]
	happens, status := true, fuse.OK
	if in.WriteFlags&fuse.WRITE_CACHE == 0 {
		happens, status = d.admit(opWrite, d.nameOf(n))
	} else if !d.alive() { // shared memory, which the kernel writes back when it likes
		return 0, fuse.EIO
	}
	if !happens {
		return 0, status
	}
	at := int(in.Offset)
	fits := d.room(n, at+len(data)) - at
	if fits <= 0 {
		return 0, fuse.Status(syscall.ENOSPC)
	}
	n.change(change{at, bytes.Clone(data[:fits])})
	return uint32(fits), status
}

// Fsync makes a file durable. If it fails, the kernel drops what was to be written: a
// later fsync does not write it.
func (d *disk) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.nodes[in.NodeId]
	happens, status := d.admit(opSync, d.nameOf(n))
	switch {
	case d.unsafe:
	case happens:
		n.sync()
	case !d.isDark():
		n.changes = nil
	}
	if status != fuse.OK {
		n.failures++
	} else if d.opened[in.Fh] < n.failures {
		status = fuse.EIO
	}
	d.opened[in.Fh] = n.failures
	return status
}

// FsyncDir makes the names durable.
func (d *disk) FsyncDir(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	happens, status := d.admit(opSyncDir, ".")
	switch {
	case d.unsafe:
	case happens:
		d.syncNames()
	case !d.isDark():
		d.moves = nil
	}
	return status
}

func (d *disk) OpenDir(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

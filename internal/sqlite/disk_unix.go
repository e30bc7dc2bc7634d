//go:build unix

package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeBytes returns how much a process without privileges may still write to the disk
// of a folder, or -1 if that is not known.
func freeBytes(dir string) int64 {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return -1
	}
	return int64(fs.Bavail) * int64(fs.Bsize)
}

// links returns how many names a file has.
func links(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Nlink) }

// serverLock returns the lock of a server on a file: one byte behind all that SQLite reads,
// writes and locks, in a file of up to 281 TB.
func serverLock() *unix.Flock_t { return &unix.Flock_t{Type: unix.F_WRLCK, Start: 1 << 62, Len: 1} }

// lockFile locks a file for a server and reports whether no other one has.
func lockFile(f *os.File) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), setLock, serverLock())
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// isLocked reports whether a server has locked a file.
func isLocked(f *os.File) bool {
	lock := serverLock()
	return unix.FcntlFlock(f.Fd(), findLock, lock) == nil && lock.Type != unix.F_UNLCK
}

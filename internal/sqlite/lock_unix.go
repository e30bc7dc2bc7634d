//go:build unix && !linux

package sqlite

import "golang.org/x/sys/unix"

// The lock belongs to the process, which drops it whenever it closes a descriptor of the file.
// SQLite closes none while a connection reads the write-ahead log.
const (
	setLock  = unix.F_SETLK
	findLock = unix.F_GETLK
)

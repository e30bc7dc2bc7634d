package sqlite

import "golang.org/x/sys/unix"

// The lock belongs to the open file and not to the process: closing another descriptor of the
// file, as SQLite does, does not drop it.
const (
	setLock  = unix.F_OFD_SETLK
	findLock = unix.F_OFD_GETLK
)

package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// attributes returns those of a process that is killed with this one. If this one
// is root, the process runs as the user postgres: PostgreSQL refuses to run as root.
func attributes() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() != 0 {
		return attr, nil
	}
	uid, gid, err := postgres()
	if err != nil {
		return nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, nil
}

// chown gives a folder to the user whose processes use it.
func chown(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := postgres()
	if err != nil {
		return err
	}
	return os.Chown(dir, uid, gid)
}

func postgres() (uid, gid int, err error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errNoPostgres, err)
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return 0, 0, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}

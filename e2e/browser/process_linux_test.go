package browser

import "syscall"

// attributes are those of a process that is killed with this one.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

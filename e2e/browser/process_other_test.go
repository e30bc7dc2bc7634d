//go:build !linux

package browser

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

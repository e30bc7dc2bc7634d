//go:build !linux

package pgtest

import "syscall"

func attributes() (*syscall.SysProcAttr, error) { return nil, nil }

func chown(string) error { return nil }

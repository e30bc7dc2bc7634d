//go:build !linux

package http1

import (
	"errors"
	"net/netip"
)

func filterConnects(int, map[netip.Addr]struct{}) error { return errors.ErrUnsupported }

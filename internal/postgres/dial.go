package postgres

import (
	"net"
	"time"
)

// A machine that loses its power neither answers nor hangs up. These bound how
// long a connection waits for one: silence first, then so many probes.
const (
	keepAliveIdle     = 4 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
	silence           = keepAliveIdle + keepAliveCount*keepAliveInterval
)

// dialer returns the dialer of all connections.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     keepAliveIdle,
			Interval: keepAliveInterval,
			Count:    keepAliveCount,
		},
		Control: limitSilence,
	}
}

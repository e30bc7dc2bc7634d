package postgres

import (
	"net"
	"time"
)

// dialer returns the dialer of all connections. A machine that loses power neither
// responds nor closes its connections: keep-alive probes find that out within ten
// seconds. They are not sent while a request is unacknowledged, so every call has a
// timeout too.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout: timeout,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     4 * time.Second,
			Interval: 2 * time.Second,
			Count:    3,
		},
	}
}

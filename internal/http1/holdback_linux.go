package http1

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filterConnects makes the kernel drop packets from the addresses that open a connection
// to a listening socket. All other packets pass, since the sockets of connections inherit
// the filter. IPv6 addresses stand for their /64.
func filterConnects(fd int, from map[netip.Addr]struct{}) error {
	if len(from) == 0 {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
	}
	program := connectFilter(from)
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
		Len: uint16(len(program)), Filter: unsafe.SliceData(program),
	})
}

// connectFilter returns the filter as a program in classic BPF. It sees a packet from its
// TCP header on, and what is before that at SKF_NET_OFF.
func connectFilter(from map[netip.Addr]struct{}) []unix.SockFilter {
	const (
		loadByte = unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
		loadWord = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		and      = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		jump     = unix.BPF_JMP | unix.BPF_JA
		equal    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		exit     = unix.BPF_RET | unix.BPF_K

		drop, pass = 0, 0xffffffff
		network    = 0xfff00000 // SKF_NET_OFF
		synAck     = 0x12
		syn        = 0x02
	)
	var v4, v6 []unix.SockFilter
	for addr := range from {
		b := addr.AsSlice()
		first := binary.BigEndian.Uint32(b)
		if addr.Is4() {
			v4 = append(v4,
				unix.SockFilter{Code: equal, Jf: 1, K: first},
				unix.SockFilter{Code: exit, K: drop})
			continue
		}
		v6 = append(v6,
			unix.SockFilter{Code: loadWord, K: network + 8},
			unix.SockFilter{Code: equal, Jf: 3, K: first},
			unix.SockFilter{Code: loadWord, K: network + 12},
			unix.SockFilter{Code: equal, Jf: 1, K: binary.BigEndian.Uint32(b[4:])},
			unix.SockFilter{Code: exit, K: drop})
	}
	program := []unix.SockFilter{
		{Code: loadByte, K: 13}, // the flags
		{Code: and, K: synAck},
		{Code: equal, Jt: 1, K: syn},
		{Code: exit, K: pass},
		{Code: loadByte, K: network}, // the version
		{Code: and, K: 0xf0},
		{Code: equal, Jt: 1, K: 0x40},
		{Code: jump, K: uint32(len(v4) + 2)},
		{Code: loadWord, K: network + 12}, // the source
	}
	program = append(program, v4...)
	program = append(program, unix.SockFilter{Code: exit, K: pass})
	program = append(program, v6...)
	return append(program, unix.SockFilter{Code: exit, K: pass})
}

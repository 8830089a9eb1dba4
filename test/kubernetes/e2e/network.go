package main

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// podNetwork holds the pods' addresses. Each node has 256 of them.
var podNetwork = netip.MustParsePrefix("10.244.0.0/16")

// machine is the address that everything but pods has beside 127.0.0.1.
var machine = netip.MustParseAddr("10.244.255.254")

// nodePods are the addresses of one node's pods.
func nodePods(node int) netip.Prefix {
	address := podNetwork.Addr().As4()
	address[2] = byte(node)
	return netip.PrefixFrom(netip.AddrFrom4(address), 24)
}

// raiseNetwork turns the loopback interface on and makes each address of a pod
// one of this machine's. A new network namespace has nothing else.
func raiseNetwork() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	mask := netip.AddrFrom4([4]byte{255, 255, 0, 0})
	for _, step := range []struct {
		name    string
		request uint
		address netip.Addr // the zero one: the interface's flags
	}{
		{"lo", unix.SIOCSIFFLAGS, netip.Addr{}},
		{"lo:pods", unix.SIOCSIFADDR, machine},
		{"lo:pods", unix.SIOCSIFNETMASK, mask},
	} {
		if err := configure(socket, step.name, step.request, step.address); err != nil {
			return fmt.Errorf("network interface %s: %w", step.name, err)
		}
	}
	return nil
}

func configure(socket int, name string, request uint, address netip.Addr) error {
	ifreq, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifreq.SetUint16(unix.IFF_UP)
	if address.IsValid() {
		if err := ifreq.SetInet4Addr(address.AsSlice()); err != nil {
			return err
		}
	}
	return unix.IoctlIfreq(socket, request, ifreq)
}

// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// isolate runs this program again as the first process in new user, process, mount and network namespaces. No
// privileges are needed. The addresses of the pods exist only in the new network namespace, so the program
// occupies no port of the host. When the first process exits, the kernel kills all other processes in the
// namespaces. If the process that called isolate is killed, the kernel also kills the first process in the new
// namespaces.
func isolate(ctx context.Context) error {
	runtime.LockOSThread() // the kernel kills the child when this thread is gone
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Minute
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("the pods' network needs user namespaces, which this system does not allow: %w", err)
	}
	return cmd.Wait()
}

// enter sets up /proc and the network in the new namespaces.
func enter() error {
	if err := errors.Join(mountProc(), raiseNetwork()); err != nil {
		return fmt.Errorf("user namespaces are restricted here: %w", err)
	}
	return nil
}

// mountProc mounts /proc for the new process namespace. Programs need /proc to read their CPU time.
func mountProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

// raiseNetwork turns on the loopback interface, and assigns the addresses of all pods to the loopback
// interface. A new network namespace has only the loopback interface.
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
		address netip.Addr // not set for SIOCSIFFLAGS, because this request needs no address
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

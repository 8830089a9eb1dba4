package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// isolated tells a process that it is the one inside.
const isolated = "REPLICAKIT_E2E_ISOLATED"

// inside reports whether this process has users, processes and a network of its
// own; see isolate.
func inside() bool { return os.Getenv(isolated) != "" }

// isolate runs this program once more, as the first process of user, process,
// mount and network namespaces of its own, which needs no rights. The pods'
// addresses exist there alone, no port is taken, and whatever was started ends
// with it, even if this process is killed.
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
		return fmt.Errorf("no user namespaces here, which the pods' network needs: %w", err)
	}
	return cmd.Wait()
}

// mountProc makes /proc tell of the new process namespace. Programs read there
// what CPU time they took.
func mountProc() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounting nothing for others to see: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return nil
}

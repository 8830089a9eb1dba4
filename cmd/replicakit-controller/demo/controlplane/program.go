// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopPatience is how long a program may take to end in order before it is
// killed.
const stopPatience = time.Minute

// A Program is a process, such as a controller of the control plane.
type Program struct {
	name  string
	log   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// StartProgram starts a program with its output in a file. Errors contain the name.
// Ctrl-C does not reach the program, so the caller stops it. On Linux the program is
// killed if this process ends before that.
func StartProgram(name, log, path string, args ...string) (*Program, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()
	p := &Program{name: name, log: log, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = attributes()
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// run keeps its thread until the process has ended; see attributes.
func (p *Program) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	defer BeforeTimeout(func() { _ = p.cmd.Process.Kill() })()
	_ = p.cmd.Wait()
	close(p.ended)
}

// PID returns the process's id.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Log returns the file with the output.
func (p *Program) Log() string { return p.log }

// Ended returns a channel that is closed when the process has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Err says how the program has ended; see Ended.
func (p *Program) Err() error {
	return fmt.Errorf("%s ended: %v; see %s", p.name, p.cmd.ProcessState, p.log)
}

// Signal sends a signal, such as SIGSTOP and SIGCONT.
func (p *Program) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop ends the program in order, and returns when the process is gone. If the program
// has ended already, Stop returns nil, because that is for a caller of Ended to report.
func (p *Program) Stop() error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may be paused
	kill := time.AfterFunc(stopPatience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		return p.Err()
	}
	return nil
}

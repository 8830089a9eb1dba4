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

// stopPatience is the maximum time from SIGTERM to the end of a program. A program that takes
// longer is killed.
const stopPatience = time.Minute

// A Program is a process, such as a controller of the control plane.
type Program struct {
	name  string
	log   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// StartProgram starts the program at path, and writes its output to the file log. Errors contain the
// given name. Ctrl-C does not reach the program, so the caller must stop it. If this process ends
// first, Linux kills the program.
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

// run starts the process and waits until it has ended. The goroutine stays locked to its thread
// until the process has ended, because Linux kills the process when the thread ends. See the field
// Pdeathsig in attr_linux.go.
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

// Log returns the path of the file that contains the output.
func (p *Program) Log() string { return p.log }

// Ended returns a channel that is closed when the process has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Err returns an error that says how the program has ended. Call Err only after the program has
// ended; see Ended.
func (p *Program) Err() error {
	return fmt.Errorf("%s ended: %v; see %s", p.name, p.cmd.ProcessState, p.log)
}

// Signal sends a signal, such as SIGSTOP or SIGCONT.
func (p *Program) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop sends SIGTERM and waits until the process has ended. If the program fails, Stop returns an
// error. If the program ended before Stop is called, Stop returns nil, even if the program failed.
// To find out whether the program has already ended, use Ended before you call Stop. Err then says how
// the program ended.
func (p *Program) Stop() error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // the process may be paused
	kill := time.AfterFunc(stopPatience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		return p.Err()
	}
	return nil
}

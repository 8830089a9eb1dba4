package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
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

// StartProgram starts a program, which errors call by the name, with its output
// in a file. Ctrl-C does not reach it: who started it stops it.
func StartProgram(name, log, path string, args ...string) (*Program, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }()
	p := &Program{name: name, log: log, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Program) PID() int { return p.cmd.Process.Pid }

// Log is the file that its output goes to.
func (p *Program) Log() string { return p.log }

// Ended is closed when the process has ended.
func (p *Program) Ended() <-chan struct{} { return p.ended }

// Err is how a program that has ended did so; see Ended.
func (p *Program) Err() error {
	return fmt.Errorf("%s ended: %v; see %s", p.name, p.cmd.ProcessState, p.log)
}

// Signal sends a signal, such as SIGSTOP and SIGCONT.
func (p *Program) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Stop ends the program in order, if it has not ended: who waits for that says
// so. It returns when the process is gone.
func (p *Program) Stop() error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // it may have been stopped
	kill := time.AfterFunc(stopPatience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		return p.Err()
	}
	return nil
}

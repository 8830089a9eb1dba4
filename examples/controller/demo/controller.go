package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// A controller is the process of the controller's program.
type controller struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

func startController(opts options, kubeconfig string) (*controller, error) {
	log, err := os.Create(filepath.Join(opts.dir, "controller.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	c := &controller{log: log.Name(), ended: make(chan struct{})}
	c.cmd = exec.Command(opts.controller, "--kubeconfig="+kubeconfig, "--metrics-bind-address=127.0.0.1:0", "-v=2")
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the controller: %w", err)
	}
	go func() {
		_ = c.cmd.Wait()
		close(c.ended)
	}()
	return c, nil
}

// err is why the controller ended of itself.
func (c *controller) err() error {
	return fmt.Errorf("the controller ended: %v; see %s", c.cmd.ProcessState, c.log)
}

// stop ends the controller in order, if it has not ended: who waits for it says
// so.
func (c *controller) stop() error {
	select {
	case <-c.ended:
		return nil
	default:
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-c.ended
	if !c.cmd.ProcessState.Success() {
		return c.err()
	}
	return nil
}

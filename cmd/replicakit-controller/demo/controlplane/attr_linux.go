// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "syscall"

// attributes returns the attributes of a new process. The process gets its own process group. Linux
// kills the process when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "syscall"

// attributes returns the attributes of a new process. The process gets its own process group, and
// Linux kills it when the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

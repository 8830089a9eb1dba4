// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "syscall"

// attributes gives the process a group of its own, and ends it when the thread that
// started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

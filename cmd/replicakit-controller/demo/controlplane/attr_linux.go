// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import "syscall"

// attributes: a group of its own, and the end when the thread that started the
// process ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

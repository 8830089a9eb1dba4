// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import "syscall"

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

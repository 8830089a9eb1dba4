// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"
)

var errNotLinux = errors.New("the pods' network needs Linux")

func isolate(context.Context) error { return errNotLinux }

func enter() error { return errNotLinux }

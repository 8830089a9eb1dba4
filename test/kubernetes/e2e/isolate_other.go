//go:build !linux

package main

import (
	"context"
	"errors"
)

var errNotLinux = errors.New("the pods' network needs Linux")

func isolate(context.Context) error { return errNotLinux }

func enter() error { return errNotLinux }

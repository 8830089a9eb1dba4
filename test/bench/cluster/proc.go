// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
)

// ticks is the number of clock ticks per second. Linux reports CPU time in clock ticks.
const ticks = 100

// cpuSeconds returns the CPU time of a process, which is the sum of its user time and system time. The
// parameter stat is the content of /proc/PID/stat.
func cpuSeconds(stat string) (float64, error) {
	// The second field is the name of the program in parentheses. The name can contain spaces and
	// parentheses, so the line is split after the last closing parenthesis.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat of a process: %q", stat)
	}
	user, userErr := strconv.ParseFloat(fields[11], 64)
	system, systemErr := strconv.ParseFloat(fields[12], 64)
	if userErr != nil || systemErr != nil {
		return 0, fmt.Errorf("stat of a process: %q", stat)
	}
	return (user + system) / ticks, nil
}

// memoryOf returns the peak and the current resident memory of a process, in bytes. The parameter status is
// the content of /proc/PID/status.
func memoryOf(status string) (peak, resident float64, err error) {
	if peak, err = statusField(status, "VmHWM:"); err != nil {
		return 0, 0, err
	}
	resident, err = statusField(status, "VmRSS:")
	return peak, resident, err
}

func statusField(status, name string) (float64, error) {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, name)
		if !found {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		return kib * 1024, err
	}
	return 0, fmt.Errorf("status of a process: no %s", strings.TrimSuffix(name, ":"))
}

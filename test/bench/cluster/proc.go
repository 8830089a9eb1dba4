package main

import (
	"fmt"
	"strconv"
	"strings"
)

// ticks are what Linux counts CPU time in, in each second.
const ticks = 100

// cpuSeconds reads /proc/PID/stat: user and system time of all threads.
func cpuSeconds(stat string) (float64, error) {
	// The name in parentheses may hold anything; the fields after it are the
	// third and so on.
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

// peakMemory reads /proc/PID/status: the most memory that was ever resident, in
// bytes.
func peakMemory(status string) (float64, error) {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "VmHWM:")
		if !found {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		return kib * 1024, err
	}
	return 0, fmt.Errorf("status of a process: no VmHWM")
}

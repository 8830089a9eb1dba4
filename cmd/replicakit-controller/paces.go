// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/replicakit/replicakit/replicas/transport"
)

// paces holds the transport.Pace of each client of the controllers, by name of the client. The zero
// value is empty.
type paces struct {
	mu     sync.Mutex
	byName map[string]*transport.Pace
}

// paceFor returns the transport.Pace that all clients with this name share, and creates it if necessary.
func (p *paces) paceFor(name string, opts options) *transport.Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byName == nil {
		p.byName = map[string]*transport.Pace{}
	}
	if p.byName[name] == nil {
		p.byName[name] = transport.NewPace(float64(opts.qps), opts.burst)
	}
	return p.byName[name]
}

var (
	callWindow = prometheus.NewDesc("replicakit_call_window",
		"How many calls to the API server a client may have under way at once. The number grows while the server answers well, and shrinks if the server gets slow or refuses calls.",
		[]string{"client"}, nil)
	callsWaiting = prometheus.NewDesc("replicakit_calls_waiting",
		"Calls to the API server that wait until others have ended, or because of --kube-api-qps.",
		[]string{"client"}, nil)
)

// Describe sends the descriptions.
func (*paces) Describe(descs chan<- *prometheus.Desc) {
	descs <- callWindow
	descs <- callsWaiting
}

// Collect sends the current values of each transport.Pace.
func (p *paces) Collect(collected chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, pace := range p.byName {
		window, waiting := pace.State()
		collected <- prometheus.MustNewConstMetric(callWindow, prometheus.GaugeValue, float64(window), name)
		collected <- prometheus.MustNewConstMetric(callsWaiting, prometheus.GaugeValue, float64(waiting), name)
	}
}

// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
)

// A tally is what a program has counted since it began.
type tally map[string]*dto.MetricFamily

func readTally(text io.Reader) (tally, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(text)
}

// sum adds the values of a metric that have all these labels.
func (t tally) sum(name string, labels map[string]string) (total float64) {
	for _, m := range t[name].GetMetric() {
		matching := 0
		for _, pair := range m.GetLabel() {
			if value, asked := labels[pair.GetName()]; asked && value == pair.GetValue() {
				matching++
			}
		}
		if matching == len(labels) {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return total
}

// cpu is the seconds of all threads.
func (t tally) cpu() float64 { return t.sum("process_cpu_seconds_total", nil) }

func serverTally(ctx context.Context, client kubernetes.Interface) (tally, error) {
	stream, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	return readTally(stream)
}

func (s side) tally(ctx context.Context) (tally, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metrics, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // a certificate of its own, in this network
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", s.metrics, resp.Status)
	}
	return readTally(resp.Body)
}

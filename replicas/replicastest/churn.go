package replicastest

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A Churn changes every pod of a namespace again and again, as probes, agents and
// controllers of others do: an annotation that nobody reads. It is a Part.
type Churn struct {
	Cluster   *Cluster
	Namespace string
	Every     time.Duration

	next time.Time
	n    int
}

// NewChurn returns a Churn that begins after half its time.
func NewChurn(c *Cluster, namespace string, every time.Duration) *Churn {
	return &Churn{Cluster: c, Namespace: namespace, Every: every, next: c.Clock.Now().Add(every / 2)}
}

// Due returns when the pods change next.
func (c *Churn) Due() (time.Time, bool) { return c.next, true }

// Step changes every pod if it is time.
func (c *Churn) Step() {
	if c.next.After(c.Cluster.Clock.Now()) {
		return
	}
	c.next = c.next.Add(c.Every)
	c.n++
	for _, p := range c.Cluster.pods.rows.in(c.Namespace) {
		_, _ = c.Cluster.EditPod(context.Background(), c.Namespace, p.Name, func(p *corev1.Pod) {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations["example.com/seen"] = strconv.Itoa(c.n)
		})
	}
}

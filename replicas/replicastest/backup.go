package replicastest

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// A Backup is what the API server had stored at one moment.
type Backup struct {
	version uint64
	pods    index[*corev1.Pod]
	sets    index[*appsv1.ReplicaSet]
}

// Backup returns what is stored.
func (c *Cluster) Backup() Backup {
	return Backup{c.version, slices.Clone(c.pods.rows), slices.Clone(c.sets.rows)}
}

// Restore puts a backup in place of what is stored: versions go back to what they
// were, and will be given a second time. All watches break. Restored is told, not Changed, and
// a namespace that is being deleted stays so.
func (c *Cluster) Restore(b Backup) {
	c.tasks = slices.DeleteFunc(c.tasks, func(t task) bool { return t.pod != nil }) // of what never was
	c.version, c.pods.rows, c.sets.rows = b.version, slices.Clone(b.pods), slices.Clone(b.sets)
	for _, s := range c.pods.streams {
		s.Break()
	}
	for _, s := range c.sets.streams {
		s.Break()
	}
	for _, p := range c.pods.rows {
		c.resume(p)
	}
	c.collectLater()
	if c.Restored != nil {
		c.Restored()
	}
}

// resume lets the scheduler and the kubelet go on with a pod that is back.
func (c *Cluster) resume(p *corev1.Pod) {
	switch {
	case p.DeletionTimestamp != nil:
		c.after(p.DeletionTimestamp.Sub(c.Clock.Now()), kill, p)
	case p.Spec.NodeName == "":
		c.schedule(p)
	case !pod.IsReady(p):
		c.after(c.timing.StartUp, start, p)
	}
}

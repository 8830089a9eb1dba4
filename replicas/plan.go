package replicas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/selector"
)

// A Plan is what Manage decided: data to execute, log, compare or show as a dry
// run. It points to the pods that Manage was given; treat them as read only.
// The zero Plan means that there is nothing to do.
type Plan struct {
	// Claims says which pods are the owner's. Patch each of Adopt and Release
	// BEFORE anything is created or deleted. Owned and Ignored need nothing.
	Claims selector.Claims[*corev1.Pod]
	// Scale is what to do AFTER the claims. It holds only if every adoption and
	// every release succeeded: else take the pods that are really owned and
	// call ScaleTo again, since a failed adoption must never cost a healthy
	// pod.
	Scale Scale
	// Blocked says why Scale is zero although replicas may be missing or in
	// surplus; "" if nothing held it back.
	Blocked Reason
}

// A Scale says how to get from the pods that are owned to the number wanted.
// At most one of Create and Delete is set.
type Scale struct {
	// Create is how many pods to create, each with NewPod, in slow start.
	// Record the expectation BEFORE the first call.
	Create int
	// Prototype is what each of the new pods is a copy of; nil if there are
	// none. It is there to be looked at, and may be changed before the first
	// call of NewPod. Do not create it itself: clients write into what they
	// send.
	Prototype *corev1.Pod
	// Delete are the pods to delete, the first to go first, each with the
	// reason why it and not a survivor. Record the expectation BEFORE the first
	// call.
	Delete []podrank.Victim[*corev1.Pod]
	// Deferred is how many more must be created or deleted, beyond the burst:
	// plan again when what this Scale starts has been observed.
	Deferred int
}

// A Reason says why a plan creates and deletes nothing.
type Reason string

// The reasons of Plan.Blocked.
const (
	// ExpectationsPending: earlier creations or deletions have not been
	// observed. Plan again when they are, or when the expectation expires.
	ExpectationsPending Reason = "expectations are pending"
	// OwnerDeleted: the owner has a deletionTimestamp; what happens to its pods
	// is the garbage collector's business.
	OwnerDeleted Reason = "owner is being deleted"
)

// IsZero reports whether there is nothing to patch, create or delete.
func (p Plan) IsZero() bool {
	return len(p.Claims.Adopt) == 0 && len(p.Claims.Release) == 0 && p.Scale.IsZero()
}

// NewPod returns the pod to create as number i, counted from 0: a pod of its own,
// which the caller may change. It is nil if i is none of the Create pods. It may
// be called from many goroutines at once.
func (s Scale) NewPod(i int) *corev1.Pod {
	if i < 0 || i >= s.Create {
		return nil
	}
	return s.Prototype.DeepCopy()
}

// IsZero reports whether there is nothing to create or delete.
func (s Scale) IsZero() bool { return s.Create == 0 && len(s.Delete) == 0 }

// String describes the plan in a line, naming ten pods of a kind at most. Its
// wording may change; MarshalJSON's will not.
func (p Plan) String() string {
	var parts []string
	if n := len(p.Claims.Adopt); n > 0 {
		parts = append(parts, fmt.Sprintf("adopt %d: %s", n, list(p.Claims.Adopt, podName)))
	}
	if n := len(p.Claims.Release); n > 0 {
		parts = append(parts, fmt.Sprintf("release %d: %s", n, list(p.Claims.Release, podName)))
	}
	if p.Blocked != "" {
		parts = append(parts, "blocked: "+string(p.Blocked))
	} else if !p.Scale.IsZero() || len(parts) == 0 {
		parts = append(parts, p.Scale.String())
	}
	return strings.Join(parts, "; ")
}

// String describes the scale step in a line, naming ten pods at most.
func (s Scale) String() string {
	var b strings.Builder
	switch {
	case s.Create > 0:
		fmt.Fprintf(&b, "create %d", s.Create)
	case len(s.Delete) > 0:
		fmt.Fprintf(&b, "delete %d: %s", len(s.Delete), list(s.Delete, func(v podrank.Victim[*corev1.Pod]) string {
			return fmt.Sprintf("%s (%s)", podName(v.Object), v.Explain())
		}))
	default:
		return "nothing to do"
	}
	if s.Deferred > 0 {
		fmt.Fprintf(&b, "; %d more later", s.Deferred)
	}
	return b.String()
}

const listed = 10

func list[S ~[]E, E any](items S, text func(E) string) string {
	var names []string
	for _, item := range items[:min(len(items), listed)] {
		names = append(names, text(item))
	}
	if more := len(items) - listed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// MarshalJSON writes the plan with references in place of pods.
func (p Plan) MarshalJSON() ([]byte, error) {
	return marshal(struct {
		Owned   []reference `json:"owned,omitempty"`
		Adopt   []reference `json:"adopt,omitempty"`
		Release []reference `json:"release,omitempty"`
		Ignored []reference `json:"ignored,omitempty"`
		Scale   Scale       `json:"scale"`
		Blocked Reason      `json:"blocked,omitempty"`
	}{
		Owned:   references(p.Claims.Owned),
		Adopt:   references(p.Claims.Adopt),
		Release: references(p.Claims.Release),
		Ignored: references(p.Claims.Ignored),
		Scale:   p.Scale,
		Blocked: p.Blocked,
	})
}

// MarshalJSON writes the scale step with references in place of pods.
func (s Scale) MarshalJSON() ([]byte, error) {
	victims := make([]victim, len(s.Delete))
	for i, v := range s.Delete {
		victims[i] = victim{
			reference: referenceTo(v.Object),
			Criterion: v.Criterion,
			Value:     v.Values.Victim,
			Survivor:  v.Values.Survivor,
			Reason:    v.Explain(),
		}
	}
	return marshal(struct {
		Create   int      `json:"create"`
		Delete   []victim `json:"delete,omitempty"`
		Deferred int      `json:"deferred,omitempty"`
	}{s.Create, victims, s.Deferred})
}

// marshal leaves the "<" of a reason readable, where the encoder that asked lets
// it be.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

type reference struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

type victim struct {
	reference
	Criterion string `json:"criterion"`
	Value     string `json:"value,omitempty"`
	Survivor  string `json:"survivor,omitempty"`
	Reason    string `json:"reason"`
}

func referenceTo(p *corev1.Pod) reference {
	if p == nil {
		return reference{}
	}
	return reference{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
}

func references(pods []*corev1.Pod) []reference {
	refs := make([]reference, len(pods))
	for i, p := range pods {
		refs[i] = referenceTo(p)
	}
	return refs
}

func podName(p *corev1.Pod) string {
	if p == nil {
		return "no pod"
	}
	return object.Name(p)
}

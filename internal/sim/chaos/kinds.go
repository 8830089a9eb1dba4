// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A kind is one kind of operation. Generate draws it the more often, the higher its weight is, and never if the weight
// is 0. Such operations stand in scenes and in stories that are written by hand. Generate adds a "run" after each
// operation that it draws, so that one has weight 0, too.
type kind struct {
	weight int
	do     func(r *run, op Op) error
}

// kinds returns all operations, keyed by name.
func kinds() map[string]kind {
	all := map[string]kind{"run": {0, func(r *run, op Op) error { return r.pass(op.For) }}}
	for _, some := range []map[string]kind{ofUsers(), ofPools(), ofNodes(), ofControllers(), ofCalls(), ofHostile()} {
		maps.Copy(all, some)
	}
	return all
}

// ofUsers returns the operations of users and of cluster policies, such as quotas and webhooks.
func ofUsers() map[string]kind {
	return map[string]kind{
		"scale":      {10, func(r *run, op Op) error { return r.editOwner("web", wanting(op.N)) }},
		"scale-db":   {3, func(r *run, op Op) error { return r.editOwner("db", wanting(op.N%5)) }},
		"select":     {2, func(r *run, op Op) error { return r.editOwner("web", selecting(op.N)) }},
		"template":   {1, func(r *run, op Op) error { return r.editOwner("web", templated(op.N)) }},
		"break-spec": {1, func(r *run, op Op) error { return r.editOwner("web", broken(op.N)) }},
		"mend-spec":  {2, func(r *run, _ Op) error { return r.editOwner("web", mended) }},
		"must-go":    {1, func(r *run, op Op) error { return r.editPod(op.N, mark("go", op.M > 2)) }},
		"must-stay":  {1, func(r *run, op Op) error { return r.editPod(op.N, mark("stay", op.M > 5)) }},
		"min-ready":  {1, func(r *run, op Op) error { return r.editOwner("web", minReady(op.N)) }},
		"relabel":    {3, func(r *run, op Op) error { r.relabelled = r.pod(op.N); return r.editPod(op.N, relabel(op.M)) }},
		"back":       {2, func(r *run, _ Op) error { return r.labelBack() }},
		"cost":       {1, func(r *run, op Op) error { return r.editPod(op.N, cost(op.M-6)) }},
		"high-cost":  {1, func(r *run, op Op) error { return r.editPod(op.N, cost(12345*(op.M-6))) }},
		"disown":     {3, func(r *run, op Op) error { return r.editPod(op.N, disowned) }},
		"noted":      {1, func(r *run, op Op) error { return r.editOwner("web", noting(op.N%4)) }},
		"veto":       {2, func(r *run, op Op) error { return r.editOwner("web", annotated(vetoed, op.M < 6)) }},
		"hold":       {2, func(r *run, op Op) error { return r.editPod(op.N, hold) }},
		"unhold":     {2, func(r *run, op Op) error { return r.editPod(op.N, unhold) }},
		"delete-pod": {3, func(r *run, op Op) error { return r.deletePod(op.N, metav1.DeleteOptions{}) }},
		"force":      {1, func(r *run, op Op) error { return r.deletePod(op.N, *metav1.NewDeleteOptions(0)) }},
		"replace":    {2, func(r *run, op Op) error { return r.replacePod(op.N) }},
		"reuse":      {1, func(r *run, op Op) error { return r.reuse(op.N) }},
		"give":       {1, func(r *run, op Op) error { return r.give(r.pod(op.N).Name) }},
		"orphan":     {3, func(r *run, _ Op) error { return r.createOrphan() }},
		"delete-owner": {2, func(r *run, op Op) error {
			policies := []metav1.DeletionPropagation{"", metav1.DeletePropagationOrphan, metav1.DeletePropagationForeground}
			return r.DeleteOwner(r.ctx, r.shape.owners(), "web", policies[op.N%len(policies)])
		}},
		"replace-owner": {2, func(r *run, op Op) error { return r.replaceOwner(op) }},
		"create-owner":  {4, func(r *run, op Op) error { return r.createOwner("web", int32(op.N)) }},
		"quota":         {2, func(r *run, op Op) error { r.SetQuota(namespace, op.N); return nil }},
		"no-quota":      {2, func(r *run, _ Op) error { r.SetQuota(namespace, plenty); return nil }},
		"webhook":       {2, func(r *run, op Op) error { r.deny(op); return nil }},
		"conflicts": {1, func(r *run, _ Op) error {
			r.Webhook = failure.Deny[*corev1.Pod]("delete", "Pod", failure.Conflict)
			return nil
		}},
		"policy":        {1, func(r *run, op Op) error { r.Webhook = policy(op); return nil }},
		"refuse-other":  {2, func(r *run, op Op) error { r.Webhook = refuses(op); return nil }},
		"mutate":        {1, func(r *run, op Op) error { r.Mutate = mutations()[op.N%len(mutations())]; return nil }},
		"no-webhook":    {4, func(r *run, _ Op) error { r.Webhook, r.Mutate = nil, nil; return nil }},
		"end-namespace": {1, func(r *run, op Op) error { r.endNamespace(op.N); return nil }},
		"new-namespace": {1, func(r *run, _ Op) error {
			inside.Of[inside.Cluster](r.PodCluster).CreateNamespace(namespace)
			return nil
		}},
		"backup": {1, func(r *run, _ Op) error {
			r.backup = inside.Of[inside.Cluster](r.PodCluster).Backup()
			r.backedUp = true
			return nil
		}},
		"restore": {1, func(r *run, _ Op) error { r.restore(); return nil }},
	}
}

// ofPools returns the operations on the pools, which are owners of other children than pods.
func ofPools() map[string]kind {
	return map[string]kind{
		"scale-pool":  {1, func(r *run, op Op) error { return r.ofPool(func(p *pools) error { return p.scale(op.N) }) }},
		"orphan-pool": {1, func(r *run, op Op) error { return r.ofPool(func(p *pools) error { return p.orphan(op) }) }},
		"pool-calls":  {1, func(r *run, op Op) error { return r.ofPool(func(p *pools) error { p.fails(op); return nil }) }},
		"pool-watch":  {1, func(r *run, op Op) error { return r.ofPool(func(p *pools) error { p.watches(op); return nil }) }},
		"template-pool": {0, func(r *run, op Op) error {
			return r.ofPool(func(p *pools) error { defer r.show(); p.template.change(op); return nil })
		}},
		"update-pool": {0, func(r *run, op Op) error {
			return r.ofPool(func(p *pools) error {
				if p.updates == nil {
					return nil
				}
				defer r.show()
				return p.updates.change(op)
			})
		}},
		"mark-pool": {0, func(r *run, op Op) error {
			return r.ofPool(func(p *pools) error {
				if !p.shape.marks {
					return nil
				}
				return p.updates.stirMarks(op)
			})
		}},
		"divide-pool": {0, func(r *run, op Op) error {
			return r.ofPool(func(p *pools) error {
				if !p.shape.groups {
					return nil
				}
				return p.updates.divide(op)
			})
		}},
		"pool-user": {2, func(r *run, op Op) error { return r.ofPool(func(p *pools) error { defer r.show(); return p.user(op) }) }},
	}
}

// ofNodes returns the operations that are events on nodes.
func ofNodes() map[string]kind {
	return map[string]kind{
		"finish":    {1, func(r *run, op Op) error { return r.editPod(op.N, finish) }},
		"restarted": {3, func(r *run, op Op) error { return r.editPod(op.N, restarted(op.M)) }},
		"unready":   {2, func(r *run, op Op) error { return r.editPod(op.N, unready) }},
		"churn":     {2, func(r *run, op Op) error { r.stir(op.N % 3); return nil }},
		"unseen":    {3, func(r *run, op Op) error { return r.dieUnseen(op) }},
		"lose-node": {1, func(r *run, _ Op) error { r.loseNode(); return nil }},
	}
}

// ofControllers returns the operations on controllers and their watches.
func ofControllers() map[string]kind {
	return map[string]kind{
		"restart":  {3, func(r *run, op Op) error { r.restart(op.N % 2); return nil }},
		"snapshot": {3, func(r *run, _ Op) error { r.snapshot(); return nil }},
		"behind":   {3, func(r *run, op Op) error { r.behind(op); return nil }},
		"second":   {2, func(r *run, _ Op) error { r.toggleSecond(); return nil }},
		"skew": {1, func(r *run, op Op) error {
			r.checker.Skewed = true
			r.controller(op.N).Skew = time.Duration(op.M-6) * []time.Duration{37 * time.Second, 37 * time.Minute}[op.N%2]
			return nil
		}},
		"lag-pods":    {4, func(r *run, op Op) error { r.controller(op.N).View.ChildWatch.Lag = lag + op.For; return nil }},
		"lag-owners":  {2, func(r *run, op Op) error { r.controller(op.N).View.OwnerWatch.Lag = lag + op.For; return nil }},
		"late-pods":   {1, func(r *run, op Op) error { r.controller(op.N).View.ChildWatch.Lag = 40 * op.For; return nil }},
		"late-owners": {1, func(r *run, op Op) error { r.controller(op.N).View.OwnerWatch.Lag = 40 * op.For; return nil }},
		"hang-pods":   {3, func(r *run, op Op) error { r.controller(op.N).View.ChildWatch.Hang(); return nil }},
		"hang-sets":   {1, func(r *run, op Op) error { r.controller(op.N).View.OwnerWatch.Hang(); return nil }},
		"catch-up":    {3, func(r *run, op Op) error { r.catchUp(op.N); return nil }},
		"hours":       {1, func(r *run, op Op) error { r.stir(0); return r.hours(1000 * op.For) }},
		"stir-sets":   {0, func(r *run, op Op) error { r.stirOwners(op.N % 3); return nil }},
		"pause": {1, func(r *run, op Op) error {
			r.pause = pause{after: 1 + op.N/3, long: op.M < 6, d: 20 * op.For}
			return nil
		}},
		"no-lag":      {3, func(r *run, op Op) error { r.noLag(op.N); return nil }},
		"break-pods":  {2, func(r *run, op Op) error { r.controller(op.N).View.ChildWatch.Break(); return nil }},
		"break-sets":  {1, func(r *run, op Op) error { r.controller(op.N).View.OwnerWatch.Break(); return nil }},
		"relist":      {4, func(r *run, op Op) error { r.relist(op.N); return nil }},
		"replay":      {3, func(r *run, op Op) error { r.podStream(op.N).Replay(op.For / 8); return nil }},
		"replay-sets": {2, func(r *run, op Op) error { r.ownerStream(op.N).Replay(op.For / 8); return nil }},
		"repeat":      {1, func(r *run, op Op) error { r.podStream(op.N).Repeat(); return nil }},
		"repeat-sets": {1, func(r *run, op Op) error { r.ownerStream(op.N).Repeat(); return nil }},
	}
}

// ofCalls returns the operations that interfere with API calls.
func ofCalls() map[string]kind {
	return map[string]kind{
		"refuse":       {4, func(r *run, op Op) error { r.refuse(op); return nil }},
		"no-answer":    {3, func(r *run, op Op) error { r.loseAnswer(op); return nil }},
		"resend":       {3, func(r *run, op Op) error { r.resend(op); return nil }},
		"refuse-again": {3, func(r *run, op Op) error { r.refuseAgain(op); return nil }},
		"blind":        {3, func(r *run, op Op) error { r.blind(op); return nil }},
		"end-context":  {2, func(r *run, op Op) error { r.endContext = 1 + op.N/2; return nil }},
		"late-call":    {3, func(r *run, op Op) error { r.landLate(op); return nil }},
		"meddle":       {4, func(r *run, op Op) error { r.meddler = meddlers(op); return nil }},
		"quick":        {3, func(r *run, op Op) error { r.quick = 1 + op.N; return nil }},
		"sudden":       {1, func(r *run, op Op) error { r.sudden = 1 + op.N/3; return nil }},
		"late-delete": {1, func(r *run, op Op) error {
			r.fault = fault{verb: "delete", left: 1 + op.M/3, is: failure.Timeout, late: 8 * op.For}
			return nil
		}},
		"refuse-lists": {1, func(r *run, _ Op) error {
			r.fault = fault{verb: "list", left: 40, is: failure.ServiceUnavailable}
			return nil
		}},
		"limbo": {3, func(r *run, op Op) error {
			r.limbo = limbo{left: 1 + op.M/2, late: op.For / 50}
			return nil
		}},
		"cut-creations": {2, func(r *run, op Op) error {
			r.cut = cut{creations: true, after: op.M%3 == 2, sent: map[string]bool{}}
			return nil
		}},
		"cut-calls": {1, func(r *run, _ Op) error { r.cut = cut{calls: true}; return nil }},
		"no-cuts":   {3, func(r *run, _ Op) error { r.cut = cut{}; return nil }},
		"crash":     {2, func(r *run, op Op) error { r.fault = fault{skip: op.N / 2, left: 1, crash: true}; return nil }},
		"crash-after": {2, func(r *run, op Op) error {
			r.fault = fault{skip: op.N / 2, left: 1, crash: true, after: true}
			return nil
		}},
		"race": {4, func(r *run, op Op) error { r.races, r.dice = op.N, op.M; return nil }},
	}
}

// plenty is a quota so large that no story reaches it.
const plenty = 10_000

func wanting(n int) func(*appsv1.ReplicaSet) {
	wanted := int32(n)
	return func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &wanted }
}

func minReady(n int) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = int32(7 * n) }
}

func relabel(m int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		metav1.SetMetaDataLabel(&p.ObjectMeta, "app", []string{"web", "web", "db", "debug"}[m%4])
	}
}

func cost(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, corev1.PodDeletionCost, itoa(n)) }
}

func hold(p *corev1.Pod) {
	if p.DeletionTimestamp == nil {
		p.Finalizers = []string{"example.com/hold"}
	}
}

func unhold(p *corev1.Pod) { p.Finalizers = nil }

func disowned(p *corev1.Pod) { p.OwnerReferences = nil }

// restarted returns a change of the restart count of a container or sidecar.
func restarted(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if status := []corev1.ContainerStatus{{Name: "web", Ready: true, RestartCount: int32(n / 2)}}; n%2 == 0 {
			p.Status.ContainerStatuses = status
			return
		}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", Ready: true, RestartCount: int32(n / 2)}}
	}
}

// vetoed is the key of an annotation. Prepare allows no creation, deletion or discard for an owner that has it.
const vetoed = "example.com/vetoed"

// note is the key of an annotation that nothing reads, so an owner that gets it wants the same as before.
const note = "example.com/note"

func noting(n int) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		metav1.SetMetaDataAnnotation(&rs.ObjectMeta, note, itoa(n))
	}
}

// annotated returns a change that sets or removes an annotation of an owner.
func annotated(key string, on bool) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		delete(rs.Annotations, key)
		if on {
			metav1.SetMetaDataAnnotation(&rs.ObjectMeta, key, "yes")
		}
	}
}

func finish(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }

func unready(p *corev1.Pod) {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodReady {
			p.Status.Conditions[i].Status = corev1.ConditionFalse
		}
	}
}

// selecting returns a change of an owner's selector and of the labels of its template.
func selecting(n int) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		labels := map[string]string{"app": "web"}
		if n%3 == 0 {
			labels["tier"] = itoa(n % 2)
		}
		rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		rs.Spec.Template.Labels = maps.Clone(labels)
	}
}

// templated returns a change of an owner's template.
func templated(n int) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		metav1.SetMetaDataLabel(&rs.Spec.Template.ObjectMeta, "template", itoa(n))
	}
}

// broken returns a change that makes the spec of an owner invalid, so that the controller refuses it until mended.
func broken(n int) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		if n%2 == 0 {
			rs.Spec.Template.Labels = map[string]string{"app": "debug"}
			return
		}
		rs.Spec.Selector = &metav1.LabelSelector{}
	}
}

func mended(rs *appsv1.ReplicaSet) {
	if len(rs.Spec.Selector.MatchLabels) == 0 {
		rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	}
	rs.Spec.Template.Labels = maps.Clone(rs.Spec.Selector.MatchLabels)
}

// mark returns a change that sets or removes one of the labels that mustGo and mustStay check.
func mark(label string, on bool) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		delete(p.Labels, label)
		if on {
			metav1.SetMetaDataLabel(&p.ObjectMeta, label, "now")
		}
	}
}

// deny installs a webhook that denies all calls with one verb.
func (r *run) deny(op Op) {
	verb := []string{"create", "patch", "delete"}[op.N%3]
	answers := []failure.Failure{failure.Forbidden, failure.Invalid, failure.BadRequest, failure.Conflict, failure.InternalError}
	r.Webhook = failure.Deny[*corev1.Pod](verb, "Pod", answers[op.M%len(answers)])
}

// policy returns a webhook that denies patches for about half of the pods.
func policy(op Op) func(string, *corev1.Pod) error {
	answers := []failure.Failure{failure.Forbidden, failure.Invalid, failure.BadRequest}
	return func(verb string, p *corev1.Pod) error {
		if verb != "patch" || int(p.UID[0])%2 != op.N%2 {
			return nil
		}
		return answers[op.M%len(answers)].Of(replicastest.Call{
			Verb: verb, Kind: "Pod", NamespacedName: types.NamespacedName{Namespace: p.Namespace, Name: p.Name},
		})
	}
}

// mutations returns the changes that webhooks make to created pods.
func mutations() []func(*corev1.Pod) {
	return []func(*corev1.Pod){
		func(p *corev1.Pod) { p.Labels["app"] = "other" },
		func(p *corev1.Pod) { p.Labels = nil },
		func(p *corev1.Pod) { p.OwnerReferences = nil },
	}
}

// A fault makes some of the next calls fail.
type fault struct {
	verb       string          // the fault affects only calls with this verb; "" means all verbs
	blind      bool            // reads that follow a failed call also fail
	mixed      bool            // every second failed call takes effect
	then       *fault          // the fault that follows this one; may be nil
	skip, left int             // number of calls that succeed at first, and number of later calls that fail
	crash      bool            // the process crashes instead of receiving an error
	after      bool            // the failed calls take effect
	resend     bool            // the client itself retries the failed requests
	late       time.Duration   // delay after which a call that failed without effect takes effect; 0 means that it never takes effect
	is         failure.Failure // the error of the failed calls
}

// refuse makes the next calls fail without taking effect.
func (r *run) refuse(op Op) {
	r.fault = fault{skip: op.N / 4, left: 1 + op.M/3, is: failure.Failure(op.M) % failure.Failures}
}

// loseAnswer makes the next calls take effect but return an error from a server or a proxy.
func (r *run) loseAnswer(op Op) {
	r.fault = fault{skip: op.N / 4, left: 1 + op.M/3, after: true, is: failure.Lost()[op.M%len(failure.Lost())]}
}

// resend makes the client itself retry the next requests, as client-go does.
func (r *run) resend(op Op) {
	is := []failure.Failure{failure.TooManyRequests, failure.ConnectionReset, failure.ServiceUnavailable}[op.M%3]
	r.fault = fault{skip: op.N / 4, left: 1 + op.M/3, after: op.N%3 > 0, resend: true, is: is}
}

// refuseAgain drops the answers to the next deletions or creations, which take effect at once or up to a minute later.
// The server then refuses a number of further calls with the same verb.
func (r *run) refuseAgain(op Op) {
	refusals := []failure.Failure{failure.Forbidden, failure.BadRequest, failure.Conflict, failure.Invalid}
	f := fault{verb: []string{"delete", "delete", "create"}[op.N%3], left: 1 + op.N/6, is: failure.Timeout, late: 8 * op.For, after: op.N > 9}
	f.then = &fault{verb: f.verb, left: f.left * (2 + op.M), is: refusals[op.M%len(refusals)]}
	r.fault = f
}

// blind drops the answers to the next deletions or creations, and lets the reads fail that follow each of them.
func (r *run) blind(op Op) {
	f := fault{verb: []string{"delete", "create"}[op.N%2], skip: op.N / 6, left: 1 + op.M/3, is: failure.Timeout, blind: true}
	switch op.M % 3 {
	case 0:
		// They take effect up to a minute later.
		f.late = 8 * op.For
	case 1:
		f.after = true
	default:
		// Every second one takes effect.
		f.mixed, f.after = true, true
	}
	r.fault = f
}

// landLate makes the next calls time out and take effect up to a minute later.
func (r *run) landLate(op Op) {
	r.fault = fault{skip: op.N / 4, left: 1 + op.M/3, late: 8 * op.For, is: failure.Timeout}
}

// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

var update = flag.Bool("update", false, "write the table of rights into docs/operating.md")

// A grant is one verb of one rule of the manifests.
type grant struct {
	kind      string // ClusterRole or Role
	rule      rbacv1.PolicyRule
	verb      string
	component string // the file of the rule
}

func (g grant) String() string {
	resource, subresource, _ := strings.Cut(g.rule.Resources[0], "/")
	text := right{g.verb, g.rule.APIGroups[0], resource, subresource}.String()
	if g.kind == "Role" {
		text += " (Role)"
	}
	return text
}

// owners returns the kind of owners that the right is about, or "".
func (g grant) owners() string {
	resource, _, _ := strings.Cut(g.rule.Resources[0], "/")
	return map[string]string{"replicasets": "ReplicaSets", "replicationcontrollers": "ReplicationControllers"}[resource]
}

// grants returns all rights of the manifests that the manager's service account gets.
func grants(t *testing.T) (all []grant) {
	t.Helper()
	for _, file := range []string{"rbac.yaml", "metrics-rbac.yaml"} {
		for _, object := range manifest(t, file) {
			var kind string
			var rules []rbacv1.PolicyRule
			switch o := object.(type) {
			case *rbacv1.ClusterRole:
				kind, rules = "ClusterRole", o.Rules
			case *rbacv1.Role:
				kind, rules = "Role", o.Rules
			}
			for _, rule := range rules {
				if len(rule.NonResourceURLs) > 0 {
					continue // the right of Prometheus
				}
				for _, verb := range rule.Verbs {
					all = append(all, grant{kind, rule, verb, file})
				}
			}
		}
	}
	return all
}

// A place is where a manager runs that lacks one right: the namespace that it serves, the namespace of its lease, and a
// user.
type place struct {
	t                  *testing.T
	client             kubernetes.Interface
	name, served, home string
	program            *program
}

// give gives the user all rights but those with the given index; -1 gives all.
func (y *place) give(all []grant, without int) {
	y.t.Helper()
	cluster := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: y.name}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: y.name, Namespace: y.home}}
	for i, g := range all {
		rule := g.rule
		rule.Verbs = []string{g.verb}
		switch {
		case i == without:
		case g.kind == "Role":
			role.Rules = append(role.Rules, rule)
		default:
			cluster.Rules = append(cluster.Rules, rule)
		}
	}
	ctx := y.t.Context()
	if without < 0 {
		_, err := y.client.RbacV1().ClusterRoles().Update(ctx, cluster, metav1.UpdateOptions{})
		require.NoError(y.t, err)
		_, err = y.client.RbacV1().Roles(y.home).Update(ctx, role, metav1.UpdateOptions{})
		require.NoError(y.t, err)
		return
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: y.name}}
	_, err := y.client.RbacV1().ClusterRoles().Create(ctx, cluster, metav1.CreateOptions{})
	require.NoError(y.t, err)
	_, err = y.client.RbacV1().Roles(y.home).Create(ctx, role, metav1.CreateOptions{})
	require.NoError(y.t, err)
	_, err = y.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: y.name}, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: y.name},
	}, metav1.CreateOptions{})
	require.NoError(y.t, err)
	_, err = y.client.RbacV1().RoleBindings(y.home).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: y.name}, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: y.name},
	}, metav1.CreateOptions{})
	require.NoError(y.t, err)
}

// stands is how long a manager gets for what it may do, before the table says that it does not do it.
const stands = 25 * time.Second

// within reports whether a condition comes true in time.
func (y *place) within(d time.Duration, is func() bool) bool {
	for end := time.Now().Add(d); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (y *place) scale(kind string, replicas int) {
	y.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	var err error
	if kind == "ReplicaSet" {
		_, err = y.client.AppsV1().ReplicaSets(y.served).Patch(y.t.Context(), "set", types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = y.client.CoreV1().ReplicationControllers(y.served).Patch(y.t.Context(), "rc", types.MergePatchType, patch, metav1.PatchOptions{})
	}
	require.NoError(y.t, err)
}

// has reports whether an owner has this many pods.
func (y *place) has(kind string, replicas int) bool {
	name := map[string]string{"ReplicaSet": "set", "ReplicationController": "rc"}[kind]
	pods, err := y.client.CoreV1().Pods(y.served).List(y.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	owned := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return metav1.GetControllerOf(&p) == nil })
	return err == nil && len(owned) == replicas && len(pods.Items) == replicas
}

// reports reports whether the status of an owner counts this many pods.
func (y *place) reports(kind string, replicas int) bool {
	if kind == "ReplicaSet" {
		set, err := y.client.AppsV1().ReplicaSets(y.served).Get(y.t.Context(), "set", metav1.GetOptions{})
		return err == nil && int(set.Status.Replicas) == replicas && set.Status.ObservedGeneration == set.Generation
	}
	rc, err := y.client.CoreV1().ReplicationControllers(y.served).Get(y.t.Context(), "rc", metav1.GetOptions{})
	return err == nil && int(rc.Status.Replicas) == replicas && rc.Status.ObservedGeneration == rc.Generation
}

// stopped tries everything that a manager does, and returns what it does not do: for both kinds alike, or for one of them.
func (y *place) stopped(token string) (what []string) {
	y.t.Helper()
	kinds := []string{"ReplicaSet", "ReplicationController"}
	lack := map[string][]string{} // what is not done for a kind
	for _, kind := range kinds {
		not := func(work string) { lack[kind] = append(lack[kind], work) }
		pods := 1 // adopts the orphan
		if !y.within(stands, func() bool { return y.has(kind, 1) }) {
			not("adoptions")
			pods = 0
		}
		y.scale(kind, 3)
		if y.within(stands, func() bool { return y.has(kind, 3) }) {
			pods = 3
		} else {
			not("creations")
		}
		if pods == 3 && !y.within(stands, func() bool { return y.reports(kind, 3) }) {
			not("status")
		}
		y.scale(kind, 1)
		if pods == 3 && !y.within(stands, func() bool { return y.has(kind, 1) }) {
			not("deletions")
		}
	}
	if slices.Equal(lack[kinds[0]], lack[kinds[1]]) {
		what = lack[kinds[0]]
	} else {
		for _, kind := range kinds {
			if lack[kind] != nil {
				what = append(what, kind+"s: "+strings.Join(lack[kind], ", "))
			}
		}
	}
	code, _ := get(y.t, &http.Client{Transport: bearer{token}}, "https://"+y.program.address()+"/metrics")
	if code != http.StatusOK {
		what = append(what, fmt.Sprintf("/metrics answers %d", code))
	}
	events, err := y.client.CoreV1().Events(y.served).List(y.t.Context(), metav1.ListOptions{})
	require.NoError(y.t, err)
	if len(events.Items) == 0 {
		what = append(what, "events")
	}
	return what
}

// said returns where the manager says that the right is missing.
func (y *place) said(g grant) (where []string) {
	y.t.Helper()
	resource, subresource, _ := strings.Cut(g.rule.Resources[0], "/")
	is := right{g.verb, g.rule.APIGroups[0], resource, subresource}.String()
	if code, text := y.program.get("/readyz"); code != http.StatusOK && strings.Contains(text, "a right is missing: "+is+" in ") {
		where = append(where, "/readyz")
	}
	if strings.Contains(y.program.log.String(), `"A right is missing" for=`) && strings.Contains(y.program.log.String(), `right="`+is+`"`) {
		where = append(where, "log")
	}
	events, err := y.client.CoreV1().Events(y.served).List(y.t.Context(), metav1.ListOptions{FieldSelector: "type=Warning"})
	require.NoError(y.t, err)
	reasons := map[string]bool{}
	for i := range events.Items {
		if reason := events.Items[i].Reason; strings.HasPrefix(reason, "Failed") && !reasons[reason] {
			reasons[reason] = true
			where = append(where, "`"+reason+"`")
		}
	}
	slices.Sort(where)
	return where
}

// The rights of the manifests are taken away one by one. The table of docs/operating.md is what the run has seen: what
// stops, what says so, and how long it took until all was right after the right was given.
func TestTheRightsOneByOne(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	all := grants(t)
	require.Greater(t, len(all), 30)
	lines, again := make([]line, len(all)), make([]time.Duration, len(all))
	var rows sync.WaitGroup
	few := make(chan struct{}, 12)
	for i, g := range all {
		rows.Go(func() {
			few <- struct{}{}
			defer func() { <-few }()
			y := &place{t: t, client: client, name: fmt.Sprintf("right-%d", i), served: fmt.Sprintf("right-%d", i), home: fmt.Sprintf("right-%d-home", i)}
			kubeconfig, err := cluster.AddUser(y.name)
			if err != nil { // require must not be called here
				t.Error(err)
				return
			}
			makeNamespace(t, client, y.served)
			makeNamespace(t, client, y.home)
			y.give(all, i)
			token := y.reader()
			y.own()
			y.program = start(t, "--kubeconfig="+writeKubeconfig(t, kubeconfig), "--namespace="+y.served, "--leader-elect-resource-namespace="+y.home, "--v=2")
			stopped := y.stopped(token)
			said := y.said(g)
			y.give(all, -1)
			began := time.Now()
			fine := y.within(patience, func() bool {
				code, _ := y.program.get("/readyz")
				return code == http.StatusOK && y.has("ReplicaSet", 1) && y.reports("ReplicaSet", 1) && y.has("ReplicationController", 1) && y.reports("ReplicationController", 1)
			})
			if assert.True(t, fine, "%s: it is not right again", g) && assert.Empty(t, y.stopped(token), "%s: given again", g) {
				stops := strings.Replace(orDash(stopped), g.owners()+":", "its kind:", 1)
				lines[i], again[i] = line{stops, orDash(said)}, time.Since(began)
			}
			y.program.stop()
		})
	}
	rows.Wait()
	t.Logf("after each right was given, all was right again within %v", slices.Max(again).Round(time.Second))
	text := tableOf(all, lines)
	t.Logf("the rights one by one:\n%s", text)
	path := filepath.Join("..", "..", "docs", "operating.md")
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	table := regexp.MustCompile(`(?s)<!-- rights -->\n(.*?)<!-- /rights -->`)
	if *update {
		page = table.ReplaceAllLiteral(page, []byte("<!-- rights -->\n"+text+"<!-- /rights -->"))
		require.NoError(t, os.WriteFile(path, page, 0o600))
	}
	found := table.FindSubmatch(page)
	require.NotNil(t, found, "no table of rights")
	assert.Equal(t, string(found[1]), text)
}

// A line is what stops without a right, and what says so.
type line struct{ stops, says string }

// tableOf returns the table of the page. Rights with the same line share a row, in the order of the manifests. Rights that
// nothing misses have none.
func tableOf(all []grant, lines []line) string {
	var text strings.Builder
	text.WriteString("| right | what stops | what says so |\n|---|---|---|\n")
	for i, l := range lines {
		if l == (line{orDash(nil), orDash(nil)}) || slices.Contains(lines[:i], l) {
			continue
		}
		verbs, resources := map[string]string{}, []string(nil)
		for k, g := range all {
			if lines[k] != l {
				continue
			}
			_, resource, _ := strings.Cut(g.String(), " ")
			if verbs[resource] == "" {
				resources = append(resources, resource)
			}
			verbs[resource] = strings.TrimPrefix(verbs[resource]+"/"+g.verb, "/")
		}
		for k, resource := range resources {
			resources[k] = "`" + verbs[resource] + " " + resource + "`"
		}
		fmt.Fprintf(&text, "| %s | %s | %s |\n", strings.Join(resources, ", "), l.stops, l.says)
	}
	return text.String()
}

func orDash(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

// reader returns the token of an account that may read the metrics.
func (y *place) reader() string {
	y.t.Helper()
	ctx := y.t.Context()
	_, err := y.client.CoreV1().ServiceAccounts(y.home).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{})
	require.NoError(y.t, err)
	_, err = y.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: y.name + "-reader"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "reader", Namespace: y.home}},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "system:monitoring"},
	}, metav1.CreateOptions{})
	require.NoError(y.t, err)
	request, err := y.client.CoreV1().ServiceAccounts(y.home).CreateToken(ctx, "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(y.t, err)
	return request.Status.Token
}

// own makes an owner of each kind that wants one pod, and an orphan for each.
func (y *place) own() {
	y.t.Helper()
	ctx := y.t.Context()
	_, err := y.client.AppsV1().ReplicaSets(y.served).Create(ctx, newReplicaSet("set", 1), metav1.CreateOptions{})
	require.NoError(y.t, err)
	template := newReplicaSet("rc", 0).Spec.Template
	_, err = y.client.CoreV1().ReplicationControllers(y.served).Create(ctx, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "rc"}, Spec: corev1.ReplicationControllerSpec{
		Replicas: new(int32(1)), Selector: template.Labels, Template: &template,
	}}, metav1.CreateOptions{})
	require.NoError(y.t, err)
	for _, app := range []string{"set", "rc"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: app + "-orphan", Labels: map[string]string{"app": app}}, Spec: template.Spec}
		_, err := y.client.CoreV1().Pods(y.served).Create(ctx, pod, metav1.CreateOptions{})
		require.NoError(y.t, err)
	}
}

// A manager without any right says at /readyz and in the log what it lacks, as a leader and while it waits for the lease,
// and is ready soon after it is given.
func TestNoRightsAtAll(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	kubeconfig, err := cluster.AddUser("no-rights")
	require.NoError(t, err)
	makeNamespace(t, client, "no-rights")
	p := start(t, "--kubeconfig="+writeKubeconfig(t, kubeconfig), "--namespace=no-rights", "--leader-elect-resource-namespace=no-rights")
	p.says(`"Serving" controllers=\["replicaset-controller","replicationcontroller-controller"\] in="namespaces no-rights"`)
	ready := func(want int, says ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			code, text := p.get("/readyz")
			assert.Equal(c, want, code)
			for _, line := range says {
				assert.Contains(c, text, line)
			}
		}, patience, 100*time.Millisecond)
	}
	ready(http.StatusServiceUnavailable, `a right is missing: list pods in namespace "no-rights", for replicaset-controller`,
		`a right is missing: get leases.coordination.k8s.io in namespace "no-rights", for leader election`,
		`a right is missing: delete replicationcontrollers in namespace "no-rights", for the door`,
		`the lease cannot be read or renewed: leases.coordination.k8s.io "replicakit-controller" is forbidden`)
	_, err = client.RbacV1().RoleBindings("no-rights").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "no-rights"}},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	ready(http.StatusOK)
	p.says(`A right was given" for="leader election" right="update leases.coordination.k8s.io"`)

	// The rights are taken away while it works.
	require.NoError(t, client.RbacV1().RoleBindings("no-rights").Delete(t.Context(), "cluster-admin", metav1.DeleteOptions{}))
	ready(http.StatusServiceUnavailable, "the lease cannot be read or renewed: ")
	assert.Equal(t, exitError, p.exitCode())
	assert.Regexp(t, `replicakit-controller: the lease was lost: it could not be renewed for 10s: leases.coordination.k8s.io "replicakit-controller" is forbidden: User "no-rights" cannot`, p.log.String())
}

// A leader that stands back lets go of the lease and still serves its metrics for a while. They do not show that it leads.
func TestALeaderThatStoodBackDoesNotLead(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	makeNamespace(t, client, "stood-back")
	sets := client.AppsV1().ReplicaSets("stood-back")
	_, err := sets.Create(t.Context(), newReplicaSet("web", 1), metav1.CreateOptions{})
	require.NoError(t, err)
	p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--namespace=stood-back", "--leader-elect-resource-namespace=stood-back", openMetrics)
	leads := func() float64 {
		_, text := p.get("/metrics")
		status := labeled(metrics(t, text)["leader_election_master_status"], "name", "replicakit-controller")
		require.Len(t, status, 1)
		return status[0].GetGauge().GetValue()
	}
	require.Eventually(t, func() bool {
		web, err := sets.Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && web.Status.Replicas == 1
	}, patience, 50*time.Millisecond)
	assert.InDelta(t, 1, leads(), 0)
	require.Eventually(t, func() bool {
		web, err := sets.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return false
		}
		web.Status.ReadyReplicas = 1 - web.Status.ReadyReplicas
		_, err = sets.UpdateStatus(t.Context(), web, metav1.UpdateOptions{FieldManager: "kube-controller-manager"})
		return err == nil && strings.Contains(p.log.String(), "Standing back")
	}, patience, time.Second)
	p.says("Released the lease")
	assert.Zero(t, leads())
}

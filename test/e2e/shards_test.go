// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"

	"github.com/replicakit/replicakit/replicas/controller"
)

// account makes a service account with the rights of the manager's, by which the
// audit log tells one manager from another, and returns its kubeconfig.
func (s *managerServer) account(t *testing.T, name string) (kubeconfig string) {
	t.Helper()
	const namespace = "kube-system"
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	_, err := s.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}}
	_, err = s.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: managerAccount},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, role := range []string{managerAccount, managerAccount + "-shards"} {
		_, err := s.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + role}, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: role},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	return writeKubeconfig(t, s.config.Host, s.config.CAData, s.token(t, namespace, name))
}

// halves are two ranges with a world in each.
func (s *managerServer) halves(t *testing.T) (ranges string, low, high *world) {
	t.Helper()
	low, high = s.world(t), s.world(t)
	if sharding.HashField(low.namespace) > sharding.HashField(high.namespace) {
		low, high = high, low
	}
	cut := "0x" + sharding.HashField(high.namespace)
	return fmt.Sprintf("0x0-%s,%s-0x10000000000000000", cut, cut), low, high
}

// shared has managers share two namespaces; one is killed, one is paused and goes
// on. The server's audit log says who wrote where, and who held the leases then.
func (s *managerServer) shared(t *testing.T) {
	t.Helper()
	const wanted = 300
	s.applyRights(t, "shards")
	ranges, wl, wh := s.halves(t)
	begin := func(name string) *manager {
		t.Helper()
		return s.start(t, "--kubeconfig="+s.account(t, name), "--shard-ranges="+ranges, "--shards-per-manager=1")
	}
	a := begin("sharer-a")
	a.says(`Serving a range of namespaces" shard=0`)
	b := begin("sharer-b")
	b.says(`Serving a range of namespaces" shard=1`)
	c := begin("sharer-c")

	highSet := wh.create(replicaSet("high", wanted))
	wh.ever(highSet, wanted/8)
	lowSet := wl.create(replicaSet("low", wanted))
	wl.allow(lowSet, controller.DefaultMaxParallel)
	wl.ever(lowSet, wanted/8)
	require.NoError(t, a.cmd.Process.Kill())
	a.ends()
	assert.Less(t, wl.history.everOwned(lowSet), wanted, "it was in the middle")
	c.says(`Serving a range of namespaces" shard=0`)
	wl.has(lowSet, wanted)
	wh.has(highSet, wanted)

	d := begin("sharer-d")
	wh.scale(highSet, 2*wanted)
	wh.allow(highSet, onTheWay)
	wh.ever(highSet, wanted+wanted/8)
	b.signal(syscall.SIGSTOP)
	there := wh.history.everOwned(highSet)
	require.Less(t, there, 2*wanted-controller.DefaultMaxParallel, "it was in the middle")
	d.says(`Serving a range of namespaces" shard=1`)
	wh.ever(highSet, there+controller.DefaultMaxParallel) // what was on its way, and some of its own
	b.signal(syscall.SIGCONT)
	b.says("the lease was lost") // that of the range, or the joint one too, which ends the manager
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	b.ends()
	wh.has(highSet, 2*wanted)
	assert.LessOrEqual(t, wh.history.everOwned(highSet), 2*wanted+onTheWay)

	other := s.start(t, "--kubeconfig="+s.account(t, "sharer-other"), "--shard-ranges=0x0-0x10000000000000000")
	assert.Equal(t, 1, other.ends())
	assert.Contains(t, other.log.String(), "controller: --shard-ranges: others are at work with other ranges, with none, with other --controllers, or with another --leader-elect-lease-duration: lease kube-system/replicakit-controller is held by shards-2-")
	c.stop()
	d.stop()
	s.wroteUnderLease(t, map[string]int{wl.namespace: 0, wh.namespace: 1})
}

// sharded has two managers ask the server for their shares: before it has the feature
// gate, and after.
func (s *managerServer) sharded(t *testing.T) {
	t.Helper()
	s.applyRights(t, "shards")
	ranges, low, high := s.halves(t)
	lowSet, highSet := low.create(replicaSet("low", 5)), high.create(replicaSet("high", 5))
	begin := func(index int, args ...string) (*manager, *door) {
		t.Helper()
		d := s.newDoor(t)
		m := s.start(t, append([]string{"--kubeconfig=" + d.kubeconfig, "--shard-ranges=" + ranges, "--sharded-list-and-watch", openMetrics}, args...)...)
		m.says(fmt.Sprintf(`Serving a range of namespaces" shard=%d`, index))
		return m, d
	}
	one := "--shards-per-manager=1"
	a, doorOfA := begin(0, one)
	b, _ := begin(1, one)
	low.has(lowSet, 5)
	high.has(highSet, 5)
	a.says("The server sends everything")
	assert.True(t, doorOfA.tells(high.namespace), "what it is sent and drops")
	a.stop()
	b.stop()

	s.env.ControlPlane.GetAPIServer().Configure().Append("feature-gates", "ShardedListAndWatch=true")
	require.NoError(t, s.restartAPIServer(t.Context()))
	s.grants(t, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "pods"}, true)
	a, doorOfA = begin(0, one)
	b, doorOfB := begin(1)
	for _, m := range []*manager{a, b} {
		for _, resource := range []string{"pods", "replicasets", "replicationcontrollers"} {
			m.says(`The server sends only what is in the range" .*resource="` + resource + `"`)
		}
	}
	low.scale(lowSet, 15)
	high.scale(highSet, 15)
	low.has(lowSet, 15)
	high.has(highSet, 15)
	assert.Equal(t, []bool{true, false}, []bool{doorOfA.tells(low.namespace), doorOfA.tells(high.namespace)})
	assert.Equal(t, []bool{false, true}, []bool{doorOfB.tells(low.namespace), doorOfB.tells(high.namespace)})
	assert.Equal(t, map[string]float64{"0": 1, "1": 0}, a.serves())
	assert.Equal(t, map[string]float64{"0": 0, "1": 1}, b.serves())

	require.NoError(t, a.cmd.Process.Kill())
	a.ends()
	low.scale(lowSet, 20)
	high.scale(highSet, 20)
	low.has(lowSet, 20)
	high.has(highSet, 20)
	assert.True(t, doorOfB.tells(low.namespace))
	assert.Equal(t, map[string]float64{"0": 1, "1": 1}, b.serves())
	b.stop()
}

// serves tells of each range whether the manager works on it: 1.
func (m *manager) serves() map[string]float64 {
	m.t.Helper()
	_, text := get(m.t, "https://"+m.address()+"/metrics", "")
	served := map[string]float64{}
	for _, metric := range families(m.t, text)["replicakit_range_served"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "shard" {
				served[label.GetValue()] = metric.GetGauge().GetValue()
			}
		}
	}
	return served
}

// An audited call is one that changed something.
type audited struct {
	Verb string
	User struct{ Username string }
	Ref  *struct{ Resource, Namespace, Name string } `json:"objectRef"`

	Response struct{ Code int } `json:"responseStatus"`
	Received time.Time          `json:"requestReceivedTimestamp"`
	Done     time.Time          `json:"stageTimestamp"`
}

// audited returns what service accounts of that prefix changed, by the time that it
// was done.
func (s *managerServer) audited(t *testing.T, prefix string) (calls []audited) {
	t.Helper()
	log, err := os.Open(s.auditLog())
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	for lines := json.NewDecoder(log); ; {
		var call audited
		if err := lines.Decode(&call); err != nil {
			break // the end, or a line that is being written
		}
		reads := []string{"get", "list", "watch"}
		if strings.HasPrefix(call.User.Username, "system:serviceaccount:kube-system:"+prefix) && call.Ref != nil &&
			call.Response.Code < http.StatusMultipleChoices && !slices.Contains(reads, call.Verb) {
			calls = append(calls, call)
		}
	}
	slices.SortFunc(calls, func(a, b audited) int { return a.Done.Compare(b.Done) })
	return calls
}

// wroteUnderLease checks each write against the leases: it was sent by whoever was
// the last to write the lease of the namespace's range before that, but for what was
// on its way when one was paused.
func (s *managerServer) wroteUnderLease(t *testing.T, rangeOf map[string]int) {
	t.Helper()
	calls := s.audited(t, "sharer-")
	var strays []audited
	writers := map[string]map[string]bool{}
	for _, call := range calls {
		index, ours := rangeOf[call.Ref.Namespace]
		if !ours {
			continue
		}
		lease := fmt.Sprintf("%s-shard-%d", managerAccount, index)
		var holder string
		for _, held := range calls {
			if held.Ref.Resource == "leases" && held.Ref.Name == lease && held.Done.Before(call.Received) {
				holder = held.User.Username
			}
		}
		if holder != call.User.Username {
			strays = append(strays, call)
		}
		if writers[call.Ref.Namespace] == nil {
			writers[call.Ref.Namespace] = map[string]bool{}
		}
		writers[call.Ref.Namespace][strings.TrimPrefix(call.User.Username, "system:serviceaccount:kube-system:")] = true
	}
	assert.LessOrEqual(t, len(strays), onTheWay, "%+v", strays)
	for namespace, index := range rangeOf {
		want := map[string]bool{"sharer-a": true, "sharer-c": true}
		if index == 1 {
			want = map[string]bool{"sharer-b": true, "sharer-d": true}
		}
		assert.Equal(t, want, writers[namespace])
	}
}

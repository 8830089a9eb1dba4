// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// A town is a control plane for one test, with one ReplicaSet.
type town struct {
	t          *testing.T
	client     kubernetes.Interface
	kubeconfig string
	ever       func() int // returns how many pods have ever existed
}

func newTown(t *testing.T) *town {
	t.Helper()
	onServers(t)
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	cluster, err := controlplane.Start(binaries, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = cluster.Stop() })
	c := &town{t: t, kubeconfig: writeKubeconfig(t, cluster.Kubeconfig)}
	c.client, err = kubernetes.NewForConfig(cluster.Config)
	require.NoError(t, err)
	c.ever = c.countPods()
	_, err = c.client.AppsV1().ReplicaSets("default").Create(t.Context(), newReplicaSet("web", 0), metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// countPods watches the pods. The returned function returns the number of pods that the watch has seen.
func (c *town) countPods() (ever func() int) {
	watch, err := c.client.CoreV1().Pods("default").Watch(c.t.Context(), metav1.ListOptions{})
	require.NoError(c.t, err)
	c.t.Cleanup(watch.Stop)
	var mu sync.Mutex
	seen := map[types.UID]bool{}
	go func() {
		for event := range watch.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				mu.Lock()
				seen[pod.UID] = true
				mu.Unlock()
			}
		}
	}()
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
}

// kubeControllerManager starts a kube-controller-manager that serves ReplicaSets and ReplicationControllers until
// stop is called.
func (c *town) kubeControllerManager(flags ...string) (stop func()) {
	c.t.Helper()
	binaries, err := controlplane.Binaries()
	require.NoError(c.t, err)
	program, err := controlplane.StartProgram("kube-controller-manager", filepath.Join(c.t.TempDir(), "log"), filepath.Join(binaries, "kube-controller-manager"),
		append([]string{
			"--kubeconfig=" + c.kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect=false",
			"--controllers=replicaset-controller,replicationcontroller-controller",
		}, flags...)...)
	require.NoError(c.t, err)
	stop = sync.OnceFunc(func() { _ = program.Stop() })
	c.t.Cleanup(stop)
	return stop
}

func (c *town) scale(replicas int) {
	c.t.Helper()
	_, err := c.client.AppsV1().ReplicaSets("default").Patch(c.t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":`+strconv.Itoa(replicas)+`}}`), metav1.PatchOptions{})
	require.NoError(c.t, err)
}

// has waits until the ReplicaSet wants this number of pods, and its status counts the same number.
func (c *town) has(replicas int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		rs, err := c.client.AppsV1().ReplicaSets("default").Get(c.t.Context(), "web", metav1.GetOptions{})
		return err == nil && rs.Status.ObservedGeneration == rs.Generation && int(rs.Status.Replicas) == replicas && int(*rs.Spec.Replicas) == replicas
	}, patience, 50*time.Millisecond, "%d pods", replicas)
}

// probes returns the names of the probes that exist.
func (c *town) probes() (names []string) {
	c.t.Helper()
	return probesIn(c.t, c.client, "kube-system")
}

// probesIn returns the names of all ReplicaSets and ReplicationControllers of a namespace. The namespace must
// contain no owners except probes.
func probesIn(t *testing.T, client kubernetes.Interface, namespace string) (names []string) {
	t.Helper()
	sets, err := client.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	controllers, err := client.CoreV1().ReplicationControllers(namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for i := range sets.Items {
		names = append(names, sets.Items[i].Name)
	}
	for i := range controllers.Items {
		names = append(names, controllers.Items[i].Name)
	}
	return names
}

// saysEvent waits for an event about an object.
func (c *town) saysEvent(namespace, kind, name, text string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		events, err := c.client.CoreV1().Events(namespace).List(c.t.Context(), metav1.ListOptions{
			FieldSelector: "reason=" + otherController + ",involvedObject.kind=" + kind + ",involvedObject.name=" + name,
		})
		if err != nil {
			return false
		}
		for i := range events.Items {
			if strings.Contains(events.Items[i].Message, text) {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond, "an event must say %q", text)
}

const served = "another controller is at work: kube-controller-manager (wrote the status of|made a pod of) Replica(Set|tionController) .*" +
	`add -replicaset-controller,-replicationcontroller-controller to the --controllers of kube-controller-manager, or set --allow-other-controllers here`

func TestBesideKubeControllerManager(t *testing.T) {
	t.Parallel()
	c := newTown(t)
	refused := func() {
		t.Helper()
		p := start(t, "--kubeconfig="+c.kubeconfig)
		assert.Equal(t, exitError, p.exitCode())
		assert.Regexp(t, "replicakit-controller: "+served, p.log.String())
		assert.Contains(t, p.log.String(), "Released the lease")
		assert.NotContains(t, p.log.String(), "Starting controller")
		assert.Empty(t, c.probes())
		c.saysEvent("kube-system", "Lease", "replicakit-controller", "add -replicaset-controller,-replicationcontroller-controller to the --controllers of kube-controller-manager")
	}
	stop := c.kubeControllerManager()
	c.scale(30)
	c.has(30)
	refused() // kube-controller-manager is idle
	c.scale(100)
	refused() // kube-controller-manager is still creating pods, because by default it makes at most 20 calls a second
	c.has(100)
	assert.Equal(t, 100, c.ever(), "nothing was made twice")

	stop()
	ours := start(t, "--kubeconfig="+c.kubeconfig, openMetrics)
	c.scale(110)
	c.has(110)
	assert.Equal(t, 110, c.ever())
	assert.Len(t, c.probes(), 2, "they stay while it works")
	second := start(t, "--kubeconfig="+c.kubeconfig, "--leader-elect-resource-name=second")
	assert.Equal(t, exitError, second.exitCode())
	assert.Contains(t, second.log.String(), "another controller is at work: replicakit-controller wrote the status of Replica", "one of ours, with another lease")
	assert.NotContains(t, ours.log.String(), "Another controller is at work")

	c.kubeControllerManager() // starts while ours is at work, as after an upgrade of the control plane
	ours.says(`Another controller is at work, and two controllers create each pod twice: turn these controllers off in one of the two programs" seen="kube-controller-manager wrote the status of Replica`)
	ours.says("Standing back: this manager makes no further changes, and exits")
	ours.says("Released the lease")
	c.saysEvent("kube-system", "Lease", "replicakit-controller", "stood back: another controller is at work: kube-controller-manager wrote the status of ")
	c.scale(150)
	c.has(150)
	assert.Equal(t, 150, c.ever(), "nothing was made twice")
	assert.Empty(t, c.probes())
	assert.Positive(t, ours.foreignWrites(aStatus), "its metrics are served for a while")
	refused() // our next process is refused too
	require.NoError(t, ours.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, exitError, ours.exitCode())
	assert.Regexp(t, "replicakit-controller: stood back: "+served, ours.log.String())

	known := start(t, "--kubeconfig="+c.kubeconfig, "--allow-other-controllers")
	known.says(`Starting controller" name="replicaset"`)
	known.stop()
}

// foreignWrites returns how many writes of other controllers were counted, for both kinds of owners together.
func (p *program) foreignWrites(what string) (writes float64) {
	p.t.Helper()
	_, text := p.get("/metrics")
	for _, m := range labeled(metrics(p.t, text)["replicakit_foreign_writes_total"], "what", what) {
		writes += m.GetCounter().GetValue()
	}
	return writes
}

// A user of one namespace creates pods and managed fields under the name of kube-controller-manager. A new manager
// still starts, and a working manager continues to work.
func TestAUserOfANamespaceIsNoOtherController(t *testing.T) {
	t.Parallel()
	c := newTown(t)
	faker := func(until func() bool, owner metav1.OwnerReference) {
		t.Helper()
		require.Eventually(t, func() bool {
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "faked-", OwnerReferences: []metav1.OwnerReference{owner}},
				Spec:       newReplicaSet("faked", 0).Spec.Template.Spec,
			}
			_, err := c.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
			return err == nil && until()
		}, patience, 100*time.Millisecond)
	}
	nobody := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "nobody", UID: "nobody", Controller: new(true)}
	ours := start(t, "--kubeconfig="+c.kubeconfig, openMetrics)
	began := func() bool {
		log := ours.log.String()
		return strings.Contains(log, `Starting controller" name="replicaset"`) && strings.Contains(log, `Starting controller" name="replicationcontroller"`)
	}
	faker(began, nobody)
	c.scale(2)
	c.has(2)

	sets := c.client.AppsV1().ReplicaSets("default")
	web, err := sets.Get(t.Context(), "web", metav1.GetOptions{})
	require.NoError(t, err)
	now, fields := metav1.NewTime(time.Now().Add(time.Hour)), &metav1.FieldsV1{}
	require.NoError(t, fields.UnmarshalJSON([]byte(`{"f:status":{"f:replicas":{}}}`)))
	web.ManagedFields = append(web.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: &now,
		APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: fields,
	})
	_, err = sets.Update(t.Context(), web, metav1.UpdateOptions{})
	require.NoError(t, err)
	c.scale(3)
	c.has(3)
	assert.Zero(t, ours.foreignWrites(aChild), "their owner does not exist")
	faker(func() bool { return ours.foreignWrites(aChild) > 0 }, *metav1.NewControllerRef(web, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")))
	c.scale(4)
	c.has(4)
	assert.InDelta(t, 1, ours.foreignWrites(aChild), 0, "an owner counts once")
	assert.Zero(t, ours.foreignWrites(aStatus))
	ours.stop()
}

// asked returns a worker and a prober. If the given function returns an error, the prober cannot create a probe.
func asked(t *testing.T, create func() error) (*worker, prober) {
	t.Helper()
	m := &manager{opts: defaults(), foreignWrites: newForeignWrites()}
	probe := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "replicakit-controller", CreationTimestamp: metav1.Now()}}
	return &worker{manager: m, others: newOthers(m)}, prober{
		create: func(context.Context, string) (metav1.Object, error) {
			if err := create(); err != nil {
				return nil, err
			}
			return probe, nil
		},
		get:    func(context.Context, string) (metav1.Object, error) { return probe, nil },
		delete: func(context.Context, string, metav1.DeleteOptions) error { return nil },
	}
}

func TestAProbeThatCannotBeMade(t *testing.T) {
	t.Parallel()
	sets := controllers()[0]
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "replicasets"}, "", errors.New("no right"))
	t.Run("a right that is missing is waited for, and told", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			given := time.Now().Add(time.Hour)
			w, p := asked(t, func() error {
				if time.Now().Before(given) {
					return forbidden
				}
				return nil
			})
			var answered bool
			go func() {
				_, found, err := w.askUntilAnswered(t.Context(), sets, p)
				assert.NoError(t, err)
				assert.Empty(t, found)
				answered = true
			}()
			time.Sleep(time.Hour - time.Minute)
			synctest.Wait()
			assert.False(t, answered)
			require.Len(t, w.waiting.all(), 1)
			assert.Contains(t, w.ready().Error(), "it is not known whether another controller serves replicasets: ")
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			assert.True(t, answered)
			assert.NoError(t, w.ready())
		})
	})
	t.Run("a webhook that is away holds nothing up for ever: its pods may be those to be made", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, p := asked(t, func() error { return apierrors.NewInternalError(errors.New("failed calling webhook")) })
			began := time.Now()
			_, found, err := w.askUntilAnswered(t.Context(), sets, p)
			require.NoError(t, err)
			assert.Empty(t, found)
			assert.GreaterOrEqual(t, time.Since(began), lookPatience)
			assert.True(t, w.others.isNew(time.Now().Add(time.Second)), "what others write counts from now on")
		})
	})
	t.Run("pods of others hold it for a while only, as they are no proof", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, p := asked(t, func() error { return nil })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				for ctx.Err() == nil {
					w.others.isNewOwner("web")
					select {
					case <-ctx.Done():
					case <-time.After(lookFor / 2):
					}
				}
			}()
			began := time.Now()
			probe, found, err := w.askUntilAnswered(ctx, sets, p)
			require.NoError(t, err)
			assert.NotNil(t, probe)
			assert.Empty(t, found)
			assert.InDelta(t, lookPatience, time.Since(began), float64(lookEvery))
		})
	})
	t.Run("a worker that is told to end does", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, p := asked(t, func() error { return forbidden })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, _, err := w.askUntilAnswered(ctx, sets, p)
			require.NoError(t, err)
			require.Error(t, ctx.Err())
		})
	})
}

// If the program is stopped while it checks for other controllers, it leaves no probe behind. The lease of the
// program has no holder afterwards.
func TestASignalWhileItLooksLeavesNothing(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	for name, signal := range map[string]os.Signal{"interrupted": os.Interrupt, "terminated": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			require.NoError(t, err)
			p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--leader-elect-resource-namespace="+name)
			require.Eventually(t, func() bool { return len(probesIn(t, client, name)) > 0 }, patience, time.Millisecond)
			require.NoError(t, p.cmd.Process.Signal(signal))
			assert.Equal(t, exitOK, p.exitCode(), p.log.String())
			assert.Empty(t, probesIn(t, client, name))
			lease, err := client.CoordinationV1().Leases(name).Get(t.Context(), "replicakit-controller", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Empty(t, *lease.Spec.HolderIdentity)
		})
	}
}

func TestAProbeThatWasLeftIsReplaced(t *testing.T) {
	t.Parallel()
	_, client := cluster(t)
	makeNamespace(t, client, "left")
	for _, c := range controllers() {
		p := c.prober(client, "left")
		first, err := p.replace(t.Context(), "probe")
		require.NoError(t, err, c.kind)
		second, err := p.replace(t.Context(), "probe")
		require.NoError(t, err, c.kind)
		assert.NotEqual(t, first.GetUID(), second.GetUID())
		p.removeMade(t.Context(), first) // removes nothing, because the probe now has another UID
		_, err = p.get(t.Context(), "probe")
		require.NoError(t, err)
		p.removeMade(t.Context(), second)
		_, err = p.get(t.Context(), "probe")
		assert.True(t, apierrors.IsNotFound(err), "%v", err)
	}
}

func makeNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// An object may be named like the lease by chance, or somebody may have scaled a probe up that a killed process left.
// Its pods are alive. The start ends with words, and neither the object nor its pods are touched.
func TestWhatIsNoProbeIsNotTouched(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	mine, probes := map[string]string{"app": "web"}, map[string]string{probeLabel: "web"}
	for name, row := range map[string]struct {
		controller       int // the index in controllers()
		labels, selector map[string]string
		replicas         int32
	}{
		"replicaset-of-somebody":              {0, mine, mine, 2},
		"replicaset-that-wants-none":          {0, mine, mine, 0},
		"replicaset-with-the-label-elsewhere": {0, probes, mine, 0},
		"replicaset-probe-of-another-name":    {0, nil, map[string]string{probeLabel: "other"}, 0},
		"replicaset-probe-scaled-up":          {0, probes, probes, 1},
		"replicationcontroller-of-somebody":   {1, mine, mine, 2},
		"replicationcontroller-of-none":       {1, mine, mine, 0},
		"replicationcontroller-scaled-up":     {1, probes, probes, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			makeNamespace(t, client, name)
			template := newReplicaSet("web", 0).Spec.Template
			template.Labels = row.selector
			about := metav1.ObjectMeta{Name: "web", Labels: row.labels}
			var owner metav1.Object
			var err error
			kind := controllers()[row.controller]
			if row.controller == 0 {
				owner, err = client.AppsV1().ReplicaSets(name).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: about, Spec: appsv1.ReplicaSetSpec{
					Replicas: &row.replicas, Selector: &metav1.LabelSelector{MatchLabels: row.selector}, Template: template,
				}}, metav1.CreateOptions{})
			} else {
				owner, err = client.CoreV1().ReplicationControllers(name).Create(t.Context(), &corev1.ReplicationController{ObjectMeta: about, Spec: corev1.ReplicationControllerSpec{
					Replicas: &row.replicas, Selector: row.selector, Template: &template,
				}}, metav1.CreateOptions{})
			}
			require.NoError(t, err)
			pod, err := client.CoreV1().Pods(name).Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Name: "alive", Labels: row.selector,
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind.resource.GroupVersion().WithKind(kind.kind))},
				},
				Spec: template.Spec,
			}, metav1.CreateOptions{})
			require.NoError(t, err)

			p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--namespace="+name, "--leader-elect-resource-namespace="+name,
				"--leader-elect-resource-name=web", "--controllers="+kind.alias)
			assert.Equal(t, exitError, p.exitCode())
			assert.Contains(t, p.log.String(), "replicakit-controller: --leader-elect-resource-name=web: a "+kind.kind+` has the name of the lease in namespace "`+name+
				`": the object is no probe of this program, so it was not touched. Give the lease another name, or another namespace with --leader-elect-resource-namespace`)
			assert.Contains(t, p.log.String(), "Released the lease")
			found, err := kind.prober(client, name).get(t.Context(), "web")
			require.NoError(t, err)
			assert.Equal(t, owner, found, "the object is as it was")
			kept, err := client.CoreV1().Pods(name).Get(t.Context(), "alive", metav1.GetOptions{})
			require.NoError(t, err)
			assert.Equal(t, pod.UID, kept.UID)
			assert.Nil(t, kept.DeletionTimestamp)
		})
	}
}

// Somebody scales the probe of a working manager up. The probe then has pods, so the manager leaves it behind when it
// ends, and says so.
func TestAProbeThatWasScaledUpStays(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	makeNamespace(t, client, "scaled-probe")
	p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--namespace=scaled-probe", "--leader-elect-resource-namespace=scaled-probe")
	p.says(`Starting controller" name="replicaset"`)
	sets := client.AppsV1().ReplicaSets("scaled-probe")
	_, err := sets.Patch(t.Context(), "replicakit-controller", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	p.stop()
	assert.Contains(t, p.log.String(), `"A probe was left behind" err="the object is no probe of this program, so it was not touched" probe="scaled-probe/replicakit-controller"`)
	_, err = sets.Get(t.Context(), "replicakit-controller", metav1.GetOptions{})
	require.NoError(t, err)
}

// Who may update the probe may also write its managed fields, or remove them. Only a changed status shows another
// controller, as at work.
func TestManagedFieldsOfAProbeProveNothing(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	makeNamespace(t, client, "forged-probe")
	sets := client.AppsV1().ReplicaSets("forged-probe")
	forge := func(change func(*appsv1.ReplicaSet)) (forged bool) {
		probe, err := sets.Get(t.Context(), "replicakit-controller", metav1.GetOptions{})
		if err != nil {
			return false
		}
		change(probe)
		_, err = sets.Update(t.Context(), probe, metav1.UpdateOptions{})
		return err == nil
	}
	now, fields := metav1.NewTime(time.Now().Add(time.Hour)), &metav1.FieldsV1{}
	require.NoError(t, fields.UnmarshalJSON([]byte(`{"f:status":{"f:replicas":{}}}`)))
	flags := []string{"--kubeconfig=" + writeKubeconfig(t, cluster.Kubeconfig), "--namespace=forged-probe", "--leader-elect-resource-namespace=forged-probe", "--controllers=replicaset"}
	p := start(t, flags...)
	require.Eventually(t, func() bool {
		return forge(func(probe *appsv1.ReplicaSet) {
			probe.ManagedFields = append(probe.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: &now,
				APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: fields,
			})
		})
	}, patience, time.Millisecond)
	p.says(`Starting controller" name="replicaset"`)
	p.stop()

	second := start(t, flags...)
	require.Eventually(t, func() bool {
		probe, err := sets.Get(t.Context(), "replicakit-controller", metav1.GetOptions{})
		if err != nil {
			return false
		}
		probe.Status.ObservedGeneration = probe.Generation
		_, err = sets.UpdateStatus(t.Context(), probe, metav1.UpdateOptions{FieldManager: "kube-controller-manager"})
		return err == nil
	}, patience, time.Millisecond)
	forge(func(probe *appsv1.ReplicaSet) { probe.ManagedFields = []metav1.ManagedFieldsEntry{{}} })
	assert.Equal(t, exitError, second.exitCode(), "a written status cannot be hidden")
	assert.Contains(t, second.log.String(), "another controller is at work: ")
}

// Tenants have all rights of Kubernetes' roles edit and admin in the namespaces that docs/scale.md gives to a manager. They
// take a lease, name their own ReplicaSet like it, and forge pods and managed fields, before the manager begins and
// while it looks. The manager begins and works, and does not touch what they have named.
func TestTenantsDoNotKeepAManagerFromBeginning(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "scale.md"))
	require.NoError(t, err)
	command := regexp.MustCompile(`(?m)^replicakit-controller (--namespace=(\S+)) +(--leader-elect-resource-namespace=\S+)$`).FindStringSubmatch(string(page))
	require.NotNil(t, command)
	kubeconfig, err := cluster.AddUser("tenant")
	require.NoError(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(t, err)
	tenant, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ctx, home := t.Context(), "shop"
	for namespace := range strings.SplitSeq(command[2], ",") {
		makeNamespace(t, client, namespace)
		if strings.HasPrefix(namespace, "manager") {
			continue
		}
		for _, role := range []string{"edit", "admin"} { // whose rules a controller would copy from these
			_, err := client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "tenant"}},
				RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "system:aggregate-to-" + role},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "replicakit-controller"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("tenant"), LeaseDurationSeconds: new(int32(86400)), AcquireTime: &metav1.MicroTime{Time: time.Now()}, RenewTime: &metav1.MicroTime{Time: time.Now()},
	}}
	require.Eventually(t, func() bool { // the server applies the new bindings after a short delay
		_, err := tenant.CoordinationV1().Leases(home).Create(ctx, lease, metav1.CreateOptions{})
		return err == nil
	}, patience, 50*time.Millisecond)
	named, err := tenant.AppsV1().ReplicaSets(home).Create(ctx, newReplicaSet("replicakit-controller", 1), metav1.CreateOptions{})
	require.NoError(t, err)
	web, err := tenant.AppsV1().ReplicaSets(home).Create(ctx, newReplicaSet("web", 2), metav1.CreateOptions{})
	require.NoError(t, err)

	p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), command[1], command[3], openMetrics)
	now, fields := metav1.NewTime(time.Now().Add(time.Hour)), &metav1.FieldsV1{}
	require.NoError(t, fields.UnmarshalJSON([]byte(`{"f:status":{"f:replicas":{}}}`)))
	forge := func(of string) {
		for _, namespace := range []string{home, command[3][strings.Index(command[3], "=")+1:]} {
			set, err := tenant.AppsV1().ReplicaSets(namespace).Get(ctx, of, metav1.GetOptions{})
			if err == nil {
				set.ManagedFields = append(set.ManagedFields, metav1.ManagedFieldsEntry{
					Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: &now,
					APIVersion: "apps/v1", FieldsType: "FieldsV1", FieldsV1: fields,
				})
				_, _ = tenant.AppsV1().ReplicaSets(namespace).Update(ctx, set, metav1.UpdateOptions{})
			}
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "forged-", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(web, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}},
			Spec:       web.Spec.Template.Spec,
		}
		_, _ = tenant.CoreV1().Pods(home).Create(ctx, pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	}
	require.Eventually(t, func() bool {
		forge("web")
		forge("replicakit-controller")
		log := p.log.String()
		return strings.Contains(log, `Starting controller" name="replicaset"`) && strings.Contains(log, `Starting controller" name="replicationcontroller"`)
	}, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		pods, err := client.CoreV1().Pods(home).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		return err == nil && len(pods.Items) == 2
	}, patience, 50*time.Millisecond)
	p.stop()
	kept, err := client.AppsV1().ReplicaSets(home).Get(ctx, "replicakit-controller", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, named.UID, kept.UID)
}

package replicas_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
)

func TestRouterKeepsSelectors(t *testing.T) {
	t.Parallel()
	orphan := podtest.Pod("orphan")
	t.Run("W53 a selector is parsed once for each version of its owner", func(t *testing.T) {
		t.Parallel()
		rs := routedOwner("web", web)
		rs.ResourceVersion = "1"
		r := routingOver(rs)
		for range 3 {
			require.NoError(t, r.PodAdded(orphan))
		}
		assert.Equal(t, 1, r.specs)
		assert.Equal(t, []string{"default/web", "default/web", "default/web"}, r.wakes)

		rs.ResourceVersion, rs.Spec.Selector = "2", &metav1.LabelSelector{MatchLabels: api}
		require.NoError(t, r.PodAdded(orphan))
		assert.Equal(t, 2, r.specs)
		assert.Len(t, r.wakes, 3, "the new selector counts")
	})
	t.Run("W53 one that is refused is not parsed again either", func(t *testing.T) {
		t.Parallel()
		rs := routedOwner("web", nil)
		rs.ResourceVersion = "1"
		r := routingOver(rs)
		for range 3 {
			require.NoError(t, r.PodAdded(orphan))
		}
		assert.Equal(t, 1, r.specs)
		assert.Empty(t, r.wakes)
	})
	t.Run("an error that may pass is not kept", func(t *testing.T) {
		t.Parallel()
		rs := routedOwner("web", web)
		rs.ResourceVersion = "1"
		r := routingOver(rs)
		works := r.Spec
		r.Spec = func(metav1.Object) (replicas.Spec, error) { return replicas.Spec{}, errors.New("for now") }
		require.NoError(t, r.PodAdded(orphan))
		r.Spec = works
		require.NoError(t, r.PodAdded(orphan))
		assert.Equal(t, []string{"default/web"}, r.wakes)
	})
	t.Run("W52 a version that a restored server gives again is another one", func(t *testing.T) {
		t.Parallel()
		rs := routedOwner("web", api)
		rs.ResourceVersion = "91"
		r := routingOver(rs)
		require.NoError(t, r.PodAdded(orphan))
		assert.Empty(t, r.wakes)
		again := routedOwner("web", web)
		again.ResourceVersion = "91"
		r.owners[0] = again
		require.NoError(t, r.OwnerUpdated(rs, again))
		r.wakes = nil
		require.NoError(t, r.PodAdded(orphan))
		assert.Equal(t, []string{"default/web"}, r.wakes)
	})
	t.Run("an owner that is gone is forgotten", func(t *testing.T) {
		t.Parallel()
		rs := routedOwner("web", web)
		rs.ResourceVersion = "1"
		r := routingOver(rs)
		require.NoError(t, r.PodAdded(orphan))
		require.NoError(t, r.OwnerDeleted(rs))
		require.NoError(t, r.PodAdded(orphan))
		assert.Equal(t, 2, r.specs)
	})
	t.Run("two owners of one UID and version, as fixtures have them, keep a selector each", func(t *testing.T) {
		t.Parallel()
		first, second := routedOwner("first", api), routedOwner("second", web)
		first.UID, second.UID = "uid", "uid"
		first.ResourceVersion, second.ResourceVersion = "1", "1"
		r := routingOver(first, second)
		for range 2 {
			require.NoError(t, r.PodAdded(orphan))
		}
		assert.Equal(t, []string{"default/second", "default/second"}, r.wakes)
		assert.Equal(t, 2, r.specs)
	})
	t.Run("owners without a version or a UID are asked each time", func(t *testing.T) {
		t.Parallel()
		nameless := routedOwner("nameless", web)
		nameless.UID, nameless.ResourceVersion = "", "1"
		r := routingOver(routedOwner("web", web), nameless)
		for range 3 {
			require.NoError(t, r.PodAdded(orphan))
		}
		assert.Equal(t, 6, r.specs)
	})
}

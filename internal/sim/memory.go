package sim

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
)

// remember makes the controller remember what another one does.
func (c *Controller) remember(other *Controller) {
	copyExpectations(c.Expectations(), other.Expectations())
	copyMemory(c.Reconciler, other.Reconciler)
}

func copyExpectations(to, from *expectations.Store[expectations.Key]) {
	now := to.Now
	defer func() { to.Now = now }()
	for key, p := range from.All() {
		to.Now = func() time.Time { return p.Since }
		to.Set(key, p.Changes)
	}
}

// memory is what a Reconciler remembers of owners beside expectations: a map of
// slices of pointers, by name. It is nobody else's business, so there is no other
// way in.
func memory(r *replicas.Reconciler) reflect.Value {
	field := reflect.ValueOf(r).Elem().FieldByName("owners").FieldByName("m")
	return reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
}

func copyMemory(to, from *replicas.Reconciler) {
	source := memory(from)
	if source.IsNil() {
		return
	}
	target := reflect.MakeMap(source.Type())
	for entry := source.MapRange(); entry.Next(); {
		owners := reflect.MakeSlice(source.Type().Elem(), 0, entry.Value().Len())
		for _, of := range entry.Value().Seq2() {
			owner := reflect.New(of.Type().Elem())
			owner.Elem().Set(of.Elem())
			owners = reflect.Append(owners, owner)
		}
		target.SetMapIndex(entry.Key(), owners)
	}
	memory(to).Set(target)
}

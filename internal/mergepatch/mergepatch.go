// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mergepatch makes and applies JSON merge patches (RFC 7386) of decoded JSON objects.
package mergepatch

// Between returns the patch that changes the object was into the object is. The patch contains every field of
// is, and null for each field that only was has. Therefore the patch also works for an object that lacks some
// of the fields that was and is share. A field that is null counts as absent. The patch and the object is
// share values.
func Between(was, is map[string]any) map[string]any {
	patch := map[string]any{}
	for k, v := range is {
		before, _ := was[k].(map[string]any)
		if now, isObject := v.(map[string]any); isObject {
			v = Between(before, now)
		}
		patch[k] = v
	}
	for k, v := range was {
		if v != nil && is[k] == nil {
			patch[k] = nil
		}
	}
	return patch
}

// Apply returns the object to with the patch applied. Apply may change that object and the objects in its
// fields.
func Apply(to, patch map[string]any) map[string]any {
	if to == nil {
		to = map[string]any{}
	}
	for k, v := range patch {
		fields, isObject := v.(map[string]any)
		switch before, _ := to[k].(map[string]any); {
		case v == nil:
			delete(to, k)
		case isObject:
			to[k] = Apply(before, fields)
		default:
			to[k] = v
		}
	}
	return to
}

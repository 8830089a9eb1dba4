// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mergepatch makes and applies JSON merge patches (RFC 7386) of decoded JSON objects.
package mergepatch

import "reflect"

// Between makes the patch that changes the first object into the second object. The patch contains every
// field of the second object, and null for each field that exists only in the first object. Fields that did
// not change are also in the patch, because the patched object may lack them. A field with the value null
// counts as absent. The patch shares values with the second object.
func Between(was, is map[string]any) map[string]any { return between(was, is, true) }

// Difference makes the patch that changes the first object into the second object. The patch contains only the
// fields that differ. A field with the value null counts as absent. The patch shares values with the second
// object.
func Difference(was, is map[string]any) map[string]any { return between(was, is, false) }

func between(was, is map[string]any, all bool) map[string]any {
	patch := map[string]any{}
	for k, v := range is {
		before, wasObject := was[k].(map[string]any)
		if now, isObject := v.(map[string]any); isObject {
			fields := between(before, now, all)
			if !all && wasObject && len(fields) == 0 {
				continue
			}
			v = fields
		} else if !all && reflect.DeepEqual(was[k], v) {
			continue
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

// Apply applies the patch to an object and returns the changed object. Apply may modify the given object and
// its nested objects.
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

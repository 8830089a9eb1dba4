// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// overtakenOften is how many passes in a row may be overtaken before an error is logged.
const overtakenOften = 5

// logError logs in one line why a pass failed. Two cases are normal, and no error: the program ended during
// the pass, or the pass was overtaken and is made again. A pass is overtaken if only its write of the
// status failed, because the owner was written by someone else.
func (c *Controller) logError(ctx context.Context, key types.NamespacedName, err error, overtaken bool) {
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		klog.FromContext(ctx).V(2).Info("Pass cut short by the end", "kind", c.kind, "key", key, "err", oneLine{err})
	case overtaken && c.queue.NumRequeues(key) < overtakenOften:
		klog.FromContext(ctx).V(2).Info("Status not written yet: the owner has changed meanwhile", "kind", c.kind, "key", key, "err", oneLine{err})
	default:
		utilruntime.HandleErrorWithContext(ctx, oneLine{err}, "Sync failed", "kind", c.kind, "key", key)
	}
}

// oneLine is an error whose text has no line breaks: joined errors have them.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

func (e oneLine) Unwrap() error { return e.error }

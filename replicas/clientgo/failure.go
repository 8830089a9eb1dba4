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

// overtakenOften is how often in a row an owner's passes may be overtaken before an error is logged.
const overtakenOften = 5

// logError logs in one line why a pass failed. If the program ended during the pass, or if the pass was
// overtaken and will be repeated, the failure is normal and is not logged as an error. A pass is overtaken
// if someone else changed the owner during the pass, so that the pass failed only to write the status.
func (c *Controller) logError(ctx context.Context, key types.NamespacedName, err error, overtaken bool) {
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		klog.FromContext(ctx).V(2).Info("Pass ended early because the program is ending", "kind", c.kind, "key", key, "err", oneLine{err})
	case overtaken && c.queue.NumRequeues(key) < overtakenOften:
		klog.FromContext(ctx).V(2).Info("Status not written, because the owner has changed. The pass is repeated", "kind", c.kind, "key", key, "err", oneLine{err})
	default:
		utilruntime.HandleErrorWithContext(ctx, oneLine{err}, "Sync failed", "kind", c.kind, "key", key)
	}
}

// oneLine is an error whose text has no line breaks. The text of a joined error has line breaks.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

func (e oneLine) Unwrap() error { return e.error }

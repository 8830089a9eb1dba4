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

// overtakenOften is the number of failed passes in a row after which a Conflict of the status write is an error.
const overtakenOften = 5

// logError logs the error of a pass in one line. A pass is overtaken if its only error is a Conflict of the status
// write, because another client has changed the owner during the pass.
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

// oneLine replaces the line breaks in an error's message, which joined errors have, with semicolons.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }

func (e oneLine) Unwrap() error { return e.error }

package podrank

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ParseDeletionCost returns the deletion cost that a pod's annotations state in
// controller.kubernetes.io/pod-deletion-cost: a decimal number of 32 bits, 0 if
// there is none (R5). A value that is none counts as 0, and the error quotes it:
// the ranking ignores it, as upstream's does, so this is how to notice.
//
// Differs from Kubernetes: zeros behind a sign are refused as those without one
// are. "-008" is as invalid as "008"; GetDeletionCostFromPodAnnotations in
// pkg/apis/core/helper reads it as -8 (W38).
func ParseDeletionCost(annotations map[string]string) (int32, error) {
	value, ok := annotations[corev1.PodDeletionCost]
	if !ok {
		return 0, nil
	}
	cost, ok := parseCost(value)
	if !ok {
		return 0, fmt.Errorf("podrank: deletion cost %q is not a decimal number of 32 bits", value)
	}
	return cost, nil
}

// parseCost reads a deletion cost; ok is false, and cost 0, if it is invalid.
func parseCost(value string) (cost int32, ok bool) {
	digits := strings.TrimPrefix(value, "-")
	if digits != "0" && (digits == "" || digits[0] < '1') {
		return 0, false // a second sign, a blank, a leading zero
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, false
	}
	return int32(n), true
}

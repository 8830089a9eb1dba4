package expectations

import (
	"cmp"
	"fmt"
	"strings"
)

// compareVersions compares two resourceVersions: a negative number means that a
// is the older one. They are numbers of any length (X7); a version that is none
// is an error.
func compareVersions(a, b string) (int, error) {
	for _, version := range []string{a, b} {
		if !isVersion(version) {
			return 0, fmt.Errorf("expectations: resourceVersion %q is not a positive decimal number", version)
		}
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)), nil
}

func isVersion(s string) bool {
	return s != "" && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChecksTheWorkingTreeAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.write("built", "not part of it")
	w.edit("adapter/adapter.go", "kit.Two + 1", "kit.Three")
	before := w.state()
	require.ErrorContains(t, w.request(checkVersion).check(t.Context()), "undefined: kit.Three")
	w.write("three.go", "package kit\n\n// Three is three.\nconst Three = 3\n")
	require.NoError(t, w.request(checkVersion).check(t.Context()))
	assert.NotEqual(t, before, w.state())
	require.NoError(t, os.Remove(filepath.Join(w.dir, "three.go")))
	assert.Equal(t, before, w.state(), "neither the tree nor git's references have changed")
}

func TestCheckFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spoil func(w *workshop)
		ask   func(r *request)
		want  string
	}{
		"no example": {
			spoil: func(w *workshop) { w.edit("adapter/example_test.go", "Example_three", "TestThree") },
			want:  "adapter: no example that can be copied out of it",
		},
		"no example that stands alone": {
			spoil: func(w *workshop) { w.edit("adapter/example_test.go", "adapter.Three", "helper()") },
			want:  "adapter: no example that can be copied out of it",
		},
		"a program that is a library": {
			ask:  func(r *request) { r.programs = []string{"adapter"} },
			want: "is not a main package",
		},
		"a program of a module that is not released": {
			spoil: func(w *workshop) { w.edit("test/test.go", "package test", "package main\n\nfunc main() {}") },
			ask:   func(r *request) { r.programs = []string{"test"} },
			want:  "does not contain package github.com/acme/kit/test",
		},
		"an unknown module": {
			ask:  func(r *request) { r.modules = append(r.modules, "nowhere") },
			want: "nowhere has no go.mod",
		},
		"a go.mod that is not tidy": {
			spoil: func(w *workshop) {
				w.edit("adapter/go.mod", "go 1.25.0", "go 1.25.0\n\nrequire golang.org/x/mod v0.32.0")
			},
			want: "go mod tidy -diff",
		},
		"a package that the module does not hold": {
			spoil: func(w *workshop) {
				w.edit("examples/manager/main.go", `"github.com/acme/kit"`, `_ "github.com/acme/kit/other"`)
			},
			want: "github.com/acme/kit/other",
		},
		"a symbolic link": {
			spoil: func(w *workshop) { require.NoError(w.t, os.Symlink("kit.go", filepath.Join(w.dir, "link.go"))) },
			want:  "link.go is not a regular file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorkshop(t)
			r := w.request(checkVersion)
			if tt.spoil != nil {
				tt.spoil(w)
			}
			if tt.ask != nil {
				tt.ask(&r)
			}
			assert.ErrorContains(t, r.check(t.Context()), tt.want)
		})
	}
}

func TestServesStagedModulesAndTheModuleCache(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"staged/github.com/acme/kit/@v/list":         "v0.1.0\n",
		"cached/github.com/acme/kit/@v/v0.9.0.mod":   "from elsewhere",
		"cached/github.com/!other/kit/@v/v1.0.0.mod": "module other\n",
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	web := server{staged: dir + "/staged", cached: dir + "/cached", root: "github.com/acme/kit"}
	for url, want := range map[string]string{
		"/github.com/acme/kit/@v/list":             "v0.1.0\n",
		"/github.com/!other/kit/@v/v1.0.0.mod":     "module other\n",
		"/github.com/acme/kit/@v/v0.9.0.mod":       "",
		"/github.com/acme/kit/adapter/@v/list":     "",
		"/github.com/acme/@v/v0.1.0.info":          "",
		"/github.com/Acme/kit/@v/list":             "",
		"/github.com/acme/kit/@v/../../../x":       "",
		"/nothing":                                 "",
		"/example.com/no such/@v/v1.0.0.mod":       "",
		"/github.com/!other/kit/@v/no.version.mod": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "http://proxy/", nil)
		r.URL.Path = url
		w := httptest.NewRecorder()
		web.ServeHTTP(w, r)
		if want == "" {
			assert.NotEqual(t, http.StatusOK, w.Code, url)
			continue
		}
		assert.Equal(t, want, w.Body.String(), url)
	}
}

func TestRefusesWrongArguments(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), nil), "want one version, or the word check or apidiff")
	require.ErrorContains(t, run(t.Context(), []string{"v0.1.0", "v0.2.0"}), "want one version")
	require.Error(t, run(t.Context(), []string{"-push"}))
	require.ErrorContains(t, run(t.Context(), []string{"-root", t.TempDir(), "check"}), "git ls-files")
}

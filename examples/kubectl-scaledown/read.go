// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// objects is what was read.
type objects struct {
	origin      string // "the input", or where in the cluster
	deployments []*appsv1.Deployment
	replicaSets []*appsv1.ReplicaSet
	controllers []*corev1.ReplicationController
	pods        []*corev1.Pod
	kinds       map[string]int // how many of each kind, those passed over too
}

// readAll reads the files one after the other; "-" is stdin.
func readAll(files []string, stdin io.Reader) (*objects, error) {
	objs := &objects{origin: "the input", kinds: map[string]int{}}
	for _, name := range files {
		if err := objs.readFile(name, stdin); err != nil {
			return nil, err
		}
	}
	return objs, nil
}

func (o *objects) readFile(name string, stdin io.Reader) error {
	if name == "-" {
		return o.read("standard input", stdin)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return o.read(name, bytes.NewReader(data))
}

// read adds the objects of a stream of YAML documents and JSON objects.
func (o *objects) read(name string, r io.Reader) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(r))
	found := 0
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		values, err := split(document)
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", name, n, err)
		}
		for _, value := range values {
			if err := o.add(value, metav1.TypeMeta{}); err != nil {
				return fmt.Errorf("%s: document %d: %w", name, n, err)
			}
		}
		found += len(values)
	}
	if found == 0 {
		return fmt.Errorf("%s is empty: expected what 'kubectl get deployments,rs,pods -o json' prints", name)
	}
	return nil
}

// split returns what one document holds, as JSON: a YAML value, or any number
// of JSON objects one behind the other. A document of comments holds nothing.
func split(document []byte) ([]json.RawMessage, error) {
	if yaml.IsJSONBuffer(document) {
		return splitJSON(bytes.TrimSpace(document))
	}
	var value json.RawMessage
	err := yaml.UnmarshalStrict(document, &value)
	if err != nil || len(value) == 0 || string(value) == "null" {
		return nil, err
	}
	return []json.RawMessage{value}, nil
}

func splitJSON(document []byte) ([]json.RawMessage, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	var values []json.RawMessage
	for {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, explain(err, document)
		}
		values = append(values, value)
	}
}

// explain says where the JSON of a document is broken.
func explain(err error, document []byte) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("JSON ends in the middle of an object")
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		read := document[:min(syntax.Offset, int64(len(document)))]
		return fmt.Errorf("JSON line %d: %w", 1+bytes.Count(read, []byte("\n")), err)
	}
	return err
}

// A header is what objects and lists of any kind have in common.
type header struct {
	metav1.TypeMeta `json:",inline"`

	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// add adds one object, or all of a list. An object of a typed list, such as a
// PodList, need not tell its own type.
func (o *objects) add(value json.RawMessage, listed metav1.TypeMeta) error {
	if !bytes.HasPrefix(value, []byte("{")) {
		return errors.New("not a Kubernetes object")
	}
	var head header
	if err := utiljson.Unmarshal(value, &head); err != nil {
		return err
	}
	if head.Kind == "" {
		head.TypeMeta = listed
	}
	if head.Kind == "" {
		return errors.New("not a Kubernetes object: it has no kind")
	}
	if item, ok := strings.CutSuffix(head.Kind, "List"); ok {
		return o.addList(head.Items, metav1.TypeMeta{APIVersion: head.APIVersion, Kind: item})
	}
	o.kinds[head.APIVersion+" "+head.Kind]++
	if err := o.decode(value, head.TypeMeta); err != nil {
		return fmt.Errorf("%s %q: %w", head.Kind, head.Metadata.Namespace+"/"+head.Metadata.Name, err)
	}
	return nil
}

func (o *objects) addList(items []json.RawMessage, listed metav1.TypeMeta) error {
	for i, item := range items {
		if err := o.add(item, listed); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

// decode keeps what can be asked about and pods, and passes over every other kind.
func (o *objects) decode(value json.RawMessage, kind metav1.TypeMeta) error {
	switch kind {
	case metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}:
		return decode(value, &o.deployments)
	case metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}:
		return decode(value, &o.replicaSets)
	case metav1.TypeMeta{APIVersion: "v1", Kind: "ReplicationController"}:
		return decode(value, &o.controllers)
	case metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}:
		return decode(value, &o.pods)
	}
	return nil
}

func decode[T any](value json.RawMessage, list *[]*T) error {
	obj := new(T)
	*list = append(*list, obj)
	return utiljson.Unmarshal(value, obj)
}

// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	gojson "encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"
	"sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"
)

// known contains the kinds of objects that the plugin reads from files. Objects of other kinds are
// only counted.
var (
	known   = runtime.NewScheme()
	decoder = serializer.NewCodecFactory(known).UniversalDeserializer()
)

func init() {
	known.AddKnownTypes(appsv1.SchemeGroupVersion, &appsv1.Deployment{}, &appsv1.ReplicaSet{})
	known.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Pod{}, &corev1.Node{}, &corev1.ReplicationController{}, &corev1.Namespace{}, &corev1.ResourceQuota{}, &corev1.Event{})
	known.AddKnownTypes(autoscalingv2.SchemeGroupVersion, &autoscalingv2.HorizontalPodAutoscaler{})
	known.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.PodDisruptionBudget{})
}

// input is the origin of objects that were read from files.
const input = "the input"

// readFiles reads dumps from the named files. From a directory, it reads the same files as kubectl
// does.
func (o *options) readFiles(names []string) (*objects, error) {
	objs := &objects{origin: input}
	for _, name := range names {
		var err error
		if name == "-" {
			err = objs.addStream("standard input", o.In)
		} else {
			err = objs.addPath(name, *o.files.Recursive)
		}
		if err != nil {
			return nil, err
		}
	}
	return objs, nil
}

func (o *objects) addPath(path string, recursive bool) error {
	files, err := resource.ExpandPathsToFileVisitors(nil, path, recursive, resource.FileExtensions, nil)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file in %s ends in one of %v", path, resource.FileExtensions)
	}
	for _, f := range files {
		if f, ok := f.(*resource.FileVisitor); ok {
			err = errors.Join(err, o.addFile(f.Path))
		}
	}
	return err
}

func (o *objects) addFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(o.addStream(path, file), file.Close())
}

// addStream adds the objects of a dump that is written in JSON or YAML. It also accepts UTF-16,
// because Windows PowerShell writes UTF-16.
func (o *objects) addStream(name string, r io.Reader) error {
	in := bufio.NewReader(transform.NewReader(r, unicode.BOMOverride(transform.Nop)))
	add := o.addYAML
	head, err := in.Peek(in.Size())
	if errors.Is(err, io.EOF) && len(bytes.TrimSpace(head)) == 0 {
		return fmt.Errorf("nothing in %s: expected what 'kubectl get deployments,rs,pods -o json' prints", name)
	}
	if yaml.IsJSONBuffer(head) {
		add = o.addJSON
	}
	if err := add(in); err != nil {
		return fmt.Errorf("error parsing %s: %w", name, err)
	}
	return nil
}

func (o *objects) addYAML(r io.Reader) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(r))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			text, err = sigsyaml.YAMLToJSON(text)
		}
		if err == nil {
			err = o.addJSON(bytes.NewReader(text))
		}
		if err != nil {
			return err
		}
	}
}

// A jsonStream decodes JSON incrementally. It also keeps the raw JSON of each value until text()
// has returned it.
type jsonStream struct {
	json.Decoder

	read  bytes.Buffer // input that the decoder has read but text() has not returned yet
	taken int64        // offset of the first byte that text() has not returned yet
}

// text returns the raw JSON that was decoded after the previous call to text. The returned slice is
// valid until the next value is decoded.
func (s *jsonStream) text() []byte {
	from := s.taken
	s.taken = s.InputOffset()
	return bytes.Trim(s.read.Next(int(s.taken-from)), ", \t\r\n")
}

// addJSON adds the objects of a stream of JSON documents. If the rest of the stream is not JSON,
// addJSON reads it as YAML.
func (o *objects) addJSON(r io.Reader) error {
	s := &jsonStream{}
	s.Decoder = json.NewDecoderCaseSensitivePreserveInts(io.TeeReader(r, &s.read))
	for {
		switch token, err := s.Token(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return o.addYAML(io.MultiReader(&s.read, r))
		case token == nil: // a YAML document that has only comments
		case token != gojson.Delim('{'):
			return fmt.Errorf("%v is not an object", token)
		default:
			if err := o.addObject(s); errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			} else if err != nil {
				return err
			}
		}
		s.text()
	}
}

// addObject adds an object whose opening brace has already been read. If the object is a list,
// addObject adds its items one by one.
func (o *objects) addObject(s *jsonStream) error {
	var kind metav1.TypeMeta
	var other gojson.RawMessage
	var unknown [][]byte
	isList := false
	for s.More() {
		field, err := s.Token()
		switch field {
		case "apiVersion":
			err = s.Decode(&kind.APIVersion)
		case "kind":
			err = s.Decode(&kind.Kind)
		case "items":
			isList = true
			unknown, err = o.addItems(s, kind)
		default:
			err = errors.Join(err, s.Decode(&other))
		}
		if err != nil {
			return err
		}
	}
	if _, err := s.Token(); err != nil {
		return err
	}
	if !isList {
		return o.addText(s.text(), metav1.TypeMeta{})
	}
	for _, text := range unknown {
		if err := o.addText(text, ofItems(kind)); err != nil {
			return err
		}
	}
	return nil
}

// A leanPod contains only those fields of a pod that the plugin reads. Each item of a list is first
// decoded as a leanPod.
type leanPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		NodeName       string             `json:"nodeName"`
		InitContainers []corev1.Container `json:"initContainers"`
	} `json:"spec"`
	Status corev1.PodStatus `json:"status"`
}

// addItems adds the items of a list. If an item has no kind and the kind of the list is not known
// yet, addItems returns the item as raw JSON. In a dump, the kind of a list may come after its
// items.
func (o *objects) addItems(s *jsonStream, list metav1.TypeMeta) (unknown [][]byte, err error) {
	if token, err := s.Token(); err != nil || token == nil {
		return nil, err
	} else if token != gojson.Delim('[') {
		return nil, fmt.Errorf("items is not a list, but begins with %v", token)
	}
	s.text()
	for i := 0; s.More(); i++ {
		var p leanPod
		err := s.Decode(&p)
		text := s.text()
		if len(text) == 0 {
			return nil, err // the end of the item was not found
		}
		kind := p.TypeMeta
		if kind.Kind == "" {
			kind = ofItems(list)
		}
		switch {
		case err == nil && kind == podKind:
			err = o.add(&corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: corev1.PodSpec{NodeName: p.Spec.NodeName, InitContainers: p.Spec.InitContainers}, Status: p.Status})
		case kind.Kind == "" && list.Kind == "":
			unknown = append(unknown, bytes.Clone(text))
		case strings.HasSuffix(kind.Kind, "List"):
			err = o.addJSON(bytes.NewReader(text))
		default:
			err = o.addText(text, kind)
		}
		if err != nil {
			return nil, fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	_, err = s.Token()
	return unknown, err
}

var podKind = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}

// ofItems returns the kind of the items in a list. For example, the items of a PodList are Pods.
func ofItems(list metav1.TypeMeta) metav1.TypeMeta {
	list.Kind = strings.TrimSuffix(list.Kind, "List")
	return list
}

// addText decodes an object and adds it. If the text contains no kind, addText uses the given kind.
func (o *objects) addText(text []byte, kind metav1.TypeMeta) error {
	obj, _, err := decoder.Decode(text, new(kind.GroupVersionKind()), nil)
	if runtime.IsNotRegisteredError(err) {
		o.others++
		return nil
	}
	if err != nil {
		return err
	}
	return o.add(obj)
}

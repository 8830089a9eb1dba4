// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"path"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/faults"
	"github.com/replicakit/replicakit/replicas/handlers"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/replicas/transport"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

type (
	pod   = *corev1.Pod
	set   = *appsv1.ReplicaSet
	mixed = metav1.Object
	key   = expectations.Key
)

// These types have the same form as the types of a client-go informer.
type (
	indexFunc func(obj any) ([]string, error)
	indexers  map[string]indexFunc
	store     struct{ typed.Indexer[indexers] }
)

// functions holds the exported functions, keyed by name. Many generic functions have two instances, one for pods
// and one for mixed lists.
var functions = map[string][]any{
	"controller.New":                          {controller.New[set, pod]},
	"controller.NoteResent":                   {controller.NoteResent},
	"controller.ReplicaSets":                  {controller.ReplicaSets},
	"controller.ReplicationControllers":       {controller.ReplicationControllers},
	"expectations.Creating":                   {expectations.Creating[pod], expectations.Creating[mixed]},
	"expectations.Deleting":                   {expectations.Deleting[pod], expectations.Deleting[mixed]},
	"expectations.IDs":                        {expectations.IDs[string]},
	"expectations.KeyOf":                      {expectations.KeyOf},
	"expectations.KeyOfController":            {expectations.KeyOfController},
	"expectations.Names":                      {expectations.Names[pod], expectations.Names[mixed]},
	"expectations.UIDs":                       {expectations.UIDs[pod], expectations.UIDs[mixed]},
	"expectations.Pointers":                   {expectations.Pointers[corev1.Pod]},
	"expectations.Sync":                       {expectations.Sync[key, pod], expectations.Sync[key, mixed]},
	"expectations.SyncLive":                   {expectations.SyncLive[key, pod], expectations.SyncLive[key, mixed]},
	"faults.Minute":                           {faults.Minute},
	"handlers.New":                            {handlers.New[set, pod]},
	"handlers.Renew":                          {handlers.Renew[set, pod]},
	"ledger.RulesOf":                          {ledger.RulesOf[pod], ledger.RulesOf[mixed]},
	"podrank.By":                              {podrank.By[pod, int]},
	"podrank.ByComparison":                    {podrank.ByComparison[pod], podrank.ByComparison[mixed]},
	"podrank.ByFacts":                         {podrank.ByFacts[pod, int]},
	"podrank.ByTime":                          {podrank.ByTime[pod]},
	"podrank.Check":                           {podrank.Check[pod], podrank.Check[mixed]},
	"podrank.Colocation":                      {podrank.Colocation},
	"podrank.ColocationRanks":                 {podrank.ColocationRanks},
	"podrank.Cost":                            {podrank.Cost[pod], podrank.Cost[mixed]},
	"podrank.CreationTime":                    {podrank.CreationTime},
	"podrank.DeletionCost":                    {podrank.DeletionCost},
	"podrank.Explain":                         {podrank.Explain[pod], podrank.Explain[mixed]},
	"podrank.First":                           {podrank.First[pod]},
	"podrank.Kubernetes":                      {podrank.Kubernetes},
	"podrank.NewOrder":                        {podrank.NewOrder[pod], podrank.NewOrder[mixed]},
	"podrank.OrderWords":                      {podrank.OrderWords},
	"podrank.ParseOrder":                      {podrank.ParseOrder},
	"podrank.Newest":                          {podrank.Newest[pod], podrank.Newest[mixed]},
	"podrank.NodeLeaving":                     {podrank.NodeLeaving},
	"podrank.NotAvailable":                    {podrank.NotAvailable},
	"podrank.NotReady":                        {podrank.NotReady},
	"podrank.Oldest":                          {podrank.Oldest[pod], podrank.Oldest[mixed]},
	"podrank.Objects":                         {podrank.Objects[pod], podrank.Objects[mixed]},
	"podrank.OldRevision":                     {podrank.OldRevision[pod], podrank.OldRevision[mixed]},
	"podrank.Packed":                          {podrank.Packed[pod], podrank.Packed[mixed]},
	"podrank.ParseDeletionCost":               {podrank.ParseDeletionCost},
	"podrank.Phase":                           {podrank.Phase},
	"podrank.ReadyTime":                       {podrank.ReadyTime},
	"podrank.Restarts":                        {podrank.Restarts},
	"podrank.Select":                          {podrank.Select[pod], podrank.Select[mixed]},
	"podrank.SidecarRestarts":                 {podrank.SidecarRestarts},
	"podrank.Spread":                          {podrank.Spread[pod], podrank.Spread[mixed]},
	"podrank.Topology":                        {podrank.Topology},
	"podrank.Unassigned":                      {podrank.Unassigned},
	"replicas.Explain":                        {replicas.Explain[pod], replicas.Explain[mixed]},
	"replicas.Manage":                         {replicas.Manage[pod], replicas.Manage[mixed]},
	"replicas.Ordinals":                       {replicas.Ordinals},
	"replicas.PodFromTemplate":                {replicas.PodFromTemplate},
	"replicas.Related":                        {replicas.Related[*appsv1.ReplicaSet, pod], replicas.Related[mixed, mixed]},
	"replicas.ReplicaSetSpec":                 {replicas.ReplicaSetSpec},
	"replicas.ReplicationControllerSpec":      {replicas.ReplicationControllerSpec},
	"replicas.RoomOf":                         {replicas.RoomOf[pod], replicas.RoomOf[mixed]},
	"replicas.ScaleTo":                        {replicas.ScaleTo[pod], replicas.ScaleTo[mixed]},
	"replicas.SlotIn":                         {replicas.SlotIn},
	"replicastest.CheckUpdate":                {replicastest.CheckUpdate[set, pod]},
	"replicastest.Crashes":                    {replicastest.Crashes},
	"replicastest.Lost":                       {replicastest.Lost},
	"replicastest.NewPodCluster":              {replicastest.NewPodCluster},
	"replicastest.NewCluster":                 {replicastest.NewCluster[set, pod]},
	"replicastest.NewClusterBeside":           {replicastest.NewClusterBeside[set, pod, pod]},
	"replicastest.NewPod":                     {replicastest.NewPod},
	"replicastest.NewReplicaSet":              {replicastest.NewReplicaSet},
	"replicastest.Orphan":                     {replicastest.Orphan[pod]},
	"replicastest.Unready":                    {replicastest.Unready},
	"replicastest.Play":                       {replicastest.Play[set, pod]},
	"replicastest.WithCost":                   {replicastest.WithCost[pod]},
	"selector.All":                            {selector.All[pod], selector.All[mixed]},
	"selector.CanAdopt":                       {selector.CanAdopt},
	"selector.ForReplicaSet":                  {selector.ForReplicaSet},
	"selector.ForReplicationController":       {selector.ForReplicationController},
	"selector.Named":                          {selector.Named[pod], selector.Named[mixed]},
	"selector.None":                           {selector.None[pod], selector.None[mixed]},
	"selector.Owners":                         {selector.Owners[pod], selector.Owners[mixed]},
	"slowstart.Batch":                         {slowstart.Batch},
	"slowstart.Run":                           {slowstart.Run},
	"status.Calculate":                        {status.Calculate},
	"status.CalculateReplicationController":   {status.CalculateReplicationController},
	"status.Count":                            {status.Count[pod], status.Count[mixed]},
	"status.CountPods":                        {status.CountPods},
	"status.FilterActivePods":                 {status.FilterActivePods},
	"status.FilterClaimedPods":                {status.FilterClaimedPods},
	"status.FilterTerminatingPods":            {status.FilterTerminatingPods},
	"status.GetCondition":                     {status.GetCondition[metav1.Condition, string]},
	"status.IsPodActive":                      {status.IsPodActive},
	"status.IsPodAvailable":                   {status.IsPodAvailable},
	"status.IsPodReady":                       {status.IsPodReady},
	"status.IsPodTerminating":                 {status.IsPodTerminating},
	"status.NeedsUpdate":                      {status.NeedsUpdate},
	"status.NeedsUpdateReplicationController": {status.NeedsUpdateReplicationController},
	"status.NewConditions":                    {status.NewConditions[metav1.Condition], status.NewConditions[string]},
	"status.NextAvailabilityCheck":            {status.NextAvailabilityCheck},
	"status.RemoveCondition":                  {status.RemoveCondition[metav1.Condition, string]},
	"status.SetCondition":                     {status.SetCondition[metav1.Condition]},
	"status.SetFailure":                       {status.SetFailure[appsv1.ReplicaSetCondition]},
	"transport.NewFence":                      {transport.NewFence},
	"transport.NewPace":                       {transport.NewPace},
	"transport.WithOwner":                     {transport.WithOwner},
	"typed.NewCache":                          {typed.NewCache[set, pod, indexers, indexFunc, *store]},
	"typed.NewClient":                         {typed.NewClient[set, pod, *appsv1.ReplicaSetList, *corev1.PodList, typed.OwnerClient[set, *appsv1.ReplicaSetList], typed.ChildClient[pod, *corev1.PodList]]},
}

// kinds holds values of the exported types, keyed by name. TestNothingPanics calls the methods of each value, and of
// other values of the same type.
var kinds = map[string][]any{
	"controller.Controller":                          {controller.Controller{}, *careful()},
	"controller.Kind":                                {controller.Kind[set, pod]{}},
	"controller.Options":                             {controller.Options{}},
	"controller.GroupOutcome":                        {controller.GroupOutcome{}},
	"controller.Outcome":                             {controller.Outcome[pod]{}},
	"controller.Pass":                                {controller.Pass[set, pod]{}},
	"controller.Gate":                                {controller.Gate{}},
	"controller.GateReason":                          {controller.GateReason(0), controller.GateReason(200)},
	"controller.Stops":                               {controller.Stops(0), controller.Stops(255)},
	"controller.Call":                                {controller.Call{}},
	"controller.Step":                                {controller.Step[*corev1.Pod]{}},
	"expectations.Changes":                           {expectations.Changes{}},
	"expectations.ConsistencyStore":                  {expectations.ConsistencyStore{}},
	"expectations.Writes":                            {expectations.Writes{}},
	"expectations.ControllerExpectations":            {expectations.ControllerExpectations[key]{}},
	"expectations.Key":                               {key{}},
	"expectations.Pending":                           {expectations.Pending{}},
	"expectations.Stale":                             {expectations.Stale{}},
	"expectations.State":                             {expectations.State(0)},
	"expectations.Store":                             {expectations.Store[key]{}},
	"expectations.UIDTrackingControllerExpectations": {expectations.UIDTrackingControllerExpectations[key]{}},
	"faults.Break":                                   {faults.Break{}},
	"faults.Call":                                    {faults.Call{}},
	"faults.Fault":                                   {faults.LoseAnswer},
	"faults.Faults":                                  {faults.Faults{}},
	"faults.Judge":                                   {faults.Judge{}},
	"faults.Report":                                  {faults.Report{Rules: make([]faults.Rule, 1)}},
	"faults.Rule":                                    {faults.Rule{}},
	"handlers.Config":                                {handlers.Config[set, pod]{}},
	"handlers.Enqueue":                               {handlers.Enqueue(nil)},
	"handlers.Handlers":                              {handlers.Handlers{}, *eventHandlers()},
	"handlers.Listener":                              {handlers.Listener[set, pod]{}},
	"ledger.Holder":                                  {ledger.Holder(200)},
	"ledger.InFlight":                                {ledger.InFlight{}},
	"ledger.Ledger":                                  {ledger.Ledger[pod]{}},
	"ledger.List":                                    {ledger.List[pod]{}},
	"ledger.Moment":                                  {ledger.Moment(1)},
	"ledger.Name":                                    {ledger.Name{}},
	"ledger.Rules":                                   {ledger.Rules[pod]{}, ledger.Rules[mixed]{}, ledger.RulesOf(&appsv1.ReplicaSet{}, schema.GroupKind{}, labels.Everything(), func(p pod) bool { return p.Name == "" })},
	"ledger.Snapshot":                                {ledger.Snapshot[pod]{}},
	"ledger.Verb":                                    {ledger.Verb(200)},
	"ledger.View":                                    {ledger.View[pod]{}},
	"podrank.ActivePods":                             {podrank.ActivePods{}},
	"podrank.ActivePodsWithRanks":                    {podrank.ActivePodsWithRanks{}},
	"podrank.Criterion":                              {podrank.Criterion[pod]{}},
	"podrank.Facts":                                  {podrank.Facts[pod]{}},
	"podrank.Options":                                {podrank.Options[pod]{}, podrank.Options[mixed]{}},
	"podrank.Order":                                  {podrank.Order[pod]{}, podrank.Order[mixed]{}},
	"podrank.PodOptions":                             {podrank.PodOptions{}},
	"podrank.Victim":                                 {podrank.Victim[pod]{}, podrank.Victim[mixed]{}},
	"replicas.Blocked":                               {replicas.Blocked{}},
	"replicas.Change":                                {replicas.Change[pod]{}, replicas.Change[mixed]{Object: &corev1.Pod{}, To: pod(nil)}, replicas.Change[mixed]{To: &appsv1.ReplicaSet{}}},
	"replicas.Deletion":                              {replicas.Deletion[pod]{}, replicas.Deletion[mixed]{}},
	"replicas.Group":                                 {replicas.Group[pod]{}},
	"replicas.GroupScale":                            {replicas.GroupScale[pod]{}},
	"replicas.PodPlan":                               {replicas.PodPlan{}},
	"replicas.Plan":                                  {replicas.Plan[mixed]{}},
	"replicas.BlockedReason":                         {replicas.BlockedReason("")},
	"replicas.RefusedError":                          {replicas.RefusedError{}},
	"replicas.Rules":                                 {replicas.Rules[pod]{}, replicas.Rules[mixed]{}},
	"replicas.PodScale":                              {replicas.PodScale{}},
	"replicas.Scale":                                 {replicas.Scale[mixed]{}},
	"replicas.Facts":                                 {replicas.Facts[pod]{}},
	"replicas.SpecOfPods":                            {replicas.SpecOfPods{}},
	"replicas.Room":                                  {replicas.Room[mixed]{}, roomy(false), roomy(true)},
	"replicas.Spec":                                  {replicas.Spec[mixed]{}},
	"transport.Fence":                                {transport.Fence{}},
	"transport.Pace":                                 {transport.Pace{}},
	"transport.Watches":                              {transport.Watches{}},
	"replicastest.Call":                              {replicastest.Call{}},
	"replicastest.Clock":                             {replicastest.Clock{}},
	"replicastest.Crash":                             {replicastest.Crash{}},
	"replicastest.Event":                             {replicastest.Event{}},
	"replicastest.Fault":                             {replicastest.Fault{}},
	"replicastest.Options":                           {replicastest.Options{}},
	"replicastest.Record":                            {replicastest.Record{}},
	"replicastest.Rule":                              {replicastest.Rule{}},
	"replicastest.Story":                             {replicastest.Story[set, pod]{}},
	"replicastest.Timing":                            {replicastest.Timing{}},
	"replicastest.Tombstone":                         {replicastest.Tombstone{}},
	"replicastest.Worker":                            {replicastest.Worker{}},
	"replicastest.World":                             {replicastest.World{}},
	"selector.Claimed":                               {selector.Claimed[pod]{}},
	"selector.Claimer":                               {selector.Claimer[pod]{}, selector.Claimer[mixed]{}},
	"selector.Claims":                                {selector.Claims[pod]{}},
	"selector.Failure":                               {selector.Failure[pod]{}},
	"selector.Patch":                                 {selector.Patch{}},
	"slowstart.Failure":                              {slowstart.Failure{}},
	"slowstart.Options":                              {slowstart.Options{}},
	"slowstart.Panic":                                {slowstart.Panic{}},
	"slowstart.Result":                               {slowstart.Result{}},
	"status.Conditions":                              {status.Conditions[metav1.Condition]{}, status.Must(status.NewConditions[metav1.Condition]())},
	"status.Counts":                                  {status.Counts{}},
	"status.Failure":                                 {status.Failure{}},
	"status.Options":                                 {status.Options{}},
	"status.Rules":                                   {status.Rules[pod]{}, status.Rules[mixed]{}},
	"typed.Cache":                                    {typed.Cache[set, pod]{}},
}

// roomy returns a Room that allows the deletion and the change of children, with or without groups.
func roomy(groups bool) replicas.Room[mixed] {
	spec := replicas.Spec[mixed]{Owner: &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Facts: replicas.Facts[mixed]{Now: time.Unix(1, 0)}}
	spec.Update = func(mixed) (none replicas.Change[mixed]) { return none }
	if groups {
		spec.GroupOf = func(c mixed) string { return c.GetName() + "group" }
	}
	room, _ := replicas.RoomOf([]mixed{&corev1.Pod{}, &corev1.Pod{}}, spec)
	return room
}

// made returns values that constructors have made, keyed by the name of their type. Only a constructor makes
// useful values of these types. TestNothingPanics calls the methods of the returned values.
func made() map[string]any {
	cluster := replicastest.NewPodCluster(replicastest.Options{Nodes: 2})
	view := cluster.NewView()
	return map[string]any{
		"replicastest.PodCluster": replicastest.NewPodCluster(replicastest.Options{}), "replicastest.Cluster": cluster,
		"replicastest.Client": cluster.NewClient(), "replicastest.Controller": cluster.NewController(),
		"replicastest.Stream": view.ChildWatch, "replicastest.View": view,
	}
}

// panicking lists the functions that panic on purpose. TestNothingPanics does not call them.
var panicking = []string{"podrank.Must", "status.Must"}

// positions lists the methods of sort.Interface that take indices. An index out of range may panic, as with a
// slice, so TestNothingPanics does not call these methods.
var positions = []string{"Less", "Swap"}

// No exported function or method panics if its arguments are nil, zero, or nil pointers in an interface. The
// functions in panicking and the methods in positions are exceptions. The test passes no nil context.Context.
func TestNothingPanics(t *testing.T) {
	t.Parallel()
	for name, instances := range functions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, f := range instances {
				throwAt(t, name, reflect.ValueOf(f))
			}
		})
	}
	for name, samples := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, sample := range samples {
				for _, receiver := range append(values(reflect.TypeOf(sample), 2), reflect.ValueOf(sample)) {
					pointer := reflect.New(receiver.Type())
					pointer.Elem().Set(receiver)
					for i := range pointer.NumMethod() {
						if method := pointer.Type().Method(i).Name; !slices.Contains(positions, method) {
							throwAt(t, name+"."+method, pointer.Method(i))
						}
					}
				}
			}
		})
	}
	for name, receiver := range made() { // these values share a cluster, which must not be used concurrently
		t.Run(name, func(t *testing.T) {
			v := reflect.ValueOf(receiver)
			for i := range v.NumMethod() {
				throwAt(t, name+"."+v.Type().Method(i).Name, v.Method(i))
			}
		})
	}
	t.Run("nil pointers that are documented", func(t *testing.T) {
		t.Parallel()
		for _, receiver := range []any{(*replicas.RefusedError)(nil), (*expectations.ConsistencyStore)(nil)} {
			v := reflect.ValueOf(receiver)
			for i := range v.NumMethod() {
				throwAt(t, v.Type().Method(i).Name, v.Method(i))
			}
		}
	})
}

// Each exported function and type of the packages in this test, except interfaces, must be in one of four lists.
// Three of the lists are package variables, which are named functions, kinds and panicking. The fourth list is the
// map that made() returns. The lists must not contain any name except these functions and types.
func TestNothingPanicsKnowsAll(t *testing.T) {
	t.Parallel()
	var found []string
	for _, dir := range append([]string{"replicas", "replicas/controller", "replicas/ledger", "replicas/handlers", "replicas/transport", "replicas/faults", "replicas/typed", "replicas/replicastest"}, primitives...) {
		name := path.Base(dir)
		for _, file := range goList(t, "-f", `{{join .GoFiles "\n"}}`, "./"+dir) {
			file, err := parser.ParseFile(token.NewFileSet(), dir+"/"+file, nil, 0)
			require.NoError(t, err)
			for _, decl := range file.Decls {
				for _, exported := range exportedBy(decl) {
					found = append(found, name+"."+exported)
				}
			}
		}
	}
	known := slices.Concat(slices.Collect(maps.Keys(functions)), slices.Collect(maps.Keys(kinds)), slices.Collect(maps.Keys(made())), panicking)
	for _, name := range found {
		assert.True(t, slices.Contains(known, name), "add %s to functions or kinds in nopanic_test.go, so that TestNothingPanics calls it", name)
	}
	for _, name := range known {
		assert.True(t, slices.Contains(found, name), "remove %s from nopanic_test.go: no package exports it", name)
	}
}

// exportedBy returns the exported functions and types in a declaration, except methods and interfaces.
func exportedBy(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			s, ok := spec.(*ast.TypeSpec)
			if !ok || !s.Name.IsExported() {
				continue
			}
			if _, ok := s.Type.(*ast.InterfaceType); !ok {
				names = append(names, s.Name.Name)
			}
		}
	}
	return names
}

// throwAt calls f with many combinations of argument values. If there are at most 400 combinations, throwAt tries
// all of them.
func throwAt(t *testing.T, name string, f reflect.Value) {
	t.Helper()
	var choices [][]reflect.Value
	all := 1
	for i := range f.Type().NumIn() {
		choices = append(choices, values(f.Type().In(i), 2))
		all *= len(choices[i])
	}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range min(all, 400) {
		args := make([]reflect.Value, len(choices))
		for i, c := range choices {
			args[i] = c[n%len(c)]
			n /= len(c)
			if all > 400 {
				args[i] = c[r.IntN(len(c))]
			}
		}
		if !survives(t, name, f, args) {
			return
		}
	}
}

func survives(t *testing.T, name string, f reflect.Value, args []reflect.Value) (ok bool) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			var text []string
			for _, a := range args {
				text = append(text, fmt.Sprintf("%s(%.200s)", a.Type(), fmt.Sprintf("%+v", a)))
			}
			t.Errorf("%s(%s) panics: %v\n%s", name, strings.Join(text, ", "), p, debug.Stack())
		}
	}()
	if f.Type().IsVariadic() {
		f.CallSlice(args)
	} else {
		f.Call(args)
	}
	return true
}

// values returns the values of a type that a careless caller may pass.
func values(of reflect.Type, depth int) []reflect.Value {
	found := []reflect.Value{reflect.Zero(of)}
	if made := samples(of); made != nil {
		return made
	}
	if depth == 0 {
		return found
	}
	switch of.Kind() {
	case reflect.Pointer:
		found = append(found, reflect.New(of.Elem()))
	case reflect.Slice:
		for _, element := range values(of.Elem(), depth-1) {
			found = append(found, reflect.Append(reflect.Zero(of), element, element))
		}
	case reflect.Func:
		found = append(found, reflect.MakeFunc(of, func([]reflect.Value) (results []reflect.Value) {
			for i := range of.NumOut() {
				results = append(results, reflect.Zero(of.Out(i)))
			}
			return results
		}))
	case reflect.Struct:
		found = append(found, filled(of, depth)...)
	case reflect.Int, reflect.Int32, reflect.Int64:
		found = append(found, reflect.ValueOf(-1).Convert(of), reflect.ValueOf(2).Convert(of))
	case reflect.String:
		found = append(found, reflect.ValueOf("x").Convert(of))
	}
	return found
}

// filled returns structs of the given type. The value of each exported field is a result of the function named
// values. If the type belongs to another module, filled returns nil.
func filled(of reflect.Type, depth int) (found []reflect.Value) {
	if !strings.HasPrefix(of.PkgPath(), module) {
		return nil
	}
	for n := range 4 {
		v := reflect.New(of).Elem()
		for i := range of.NumField() {
			if of.Field(i).IsExported() {
				choices := values(of.Field(i).Type, depth-1)
				v.Field(i).Set(choices[n%len(choices)])
			}
		}
		found = append(found, v)
	}
	return found
}

// samples returns the values to try for some interface types and a few other types, such as time.Time. For all
// other types, samples returns nil.
func samples(of reflect.Type) []reflect.Value {
	var list []any
	var none *appsv1.ReplicaSet
	switch of {
	case reflect.TypeFor[context.Context]():
		list = []any{context.Background()}
	case reflect.TypeFor[metav1.Object]():
		list = []any{nil, none, &appsv1.ReplicaSet{}, &metav1.ObjectMeta{Name: "x", UID: "x"}}
	case reflect.TypeFor[any]():
		list = []any{nil, "x", none, pod(nil), &corev1.Pod{}, &appsv1.ReplicaSet{}, struct {
			Key string
			Obj any
		}{}}
	case reflect.TypeFor[labels.Selector]():
		list = []any{nil, (*careless)(nil), labels.Nothing(), labels.Everything(), labels.SelectorFromSet(labels.Set{"a": "b"})}
	case reflect.TypeFor[error]():
		list = []any{nil, errors.New("x"), (*replicas.RefusedError)(nil)}
	case reflect.TypeFor[controller.Client[set, pod]](), reflect.TypeFor[controller.Cache[set, pod]](), reflect.TypeFor[handlers.OwnerCache[set]](), reflect.TypeFor[controller.EventSink]():
		list = []any{nil, careless{}, (*careless)(nil)}
	case reflect.TypeFor[*expectations.Store[key]]():
		list = []any{(*expectations.Store[key])(nil), &expectations.Store[key]{}}
	case reflect.TypeFor[time.Time]():
		list = []any{time.Time{}, time.Unix(1, 0)}
	}
	var found []reflect.Value
	for _, sample := range list {
		v := reflect.New(of).Elem()
		if sample != nil {
			v.Set(reflect.ValueOf(sample))
		}
		found = append(found, v)
	}
	return found
}

// careful returns a Controller whose client and cache have the type careless.
func careful() *controller.Controller {
	c, err := controller.New(controller.ReplicaSets(), careless{}, careless{}, func(types.NamespacedName, time.Duration) {}, controller.Options{})
	if err != nil {
		panic(err)
	}
	return c
}

// eventHandlers returns Handlers whose cache of owners has the type careless.
func eventHandlers() *handlers.Handlers {
	h, err := handlers.New(handlers.Config[set, pod]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Spec: replicas.ReplicaSetSpec,
		Owners: careless{}, Store: &expectations.Store[key]{}, Enqueue: func(types.NamespacedName, time.Duration) {},
	})
	if err != nil {
		panic(err)
	}
	return h
}

// careless is a labels.Selector, a client, a cache and an EventSink. On a nil *careless, every method panics. Most
// methods of the client and the cache return nil, or lists that contain nil.
type careless struct{ labels.Selector }

func (careless) Create(context.Context, pod) (pod, error) { return nil, nil }
func (careless) Delete(context.Context, pod, metav1.DeleteOptions) error {
	return nil
}

func (careless) Patch(context.Context, pod, selector.Patch, metav1.PatchOptions) (pod, error) {
	return nil, nil
}
func (careless) Get(context.Context, string, string) (pod, error) { return nil, nil }
func (careless) List(context.Context, string, labels.Selector) (ledger.List[pod], error) {
	return ledger.List[pod]{Items: []pod{nil}}, nil
}
func (careless) GetOwner(context.Context, string, string) (set, error)         { return nil, nil }
func (careless) PatchStatus(context.Context, set, selector.Patch) (set, error) { return nil, nil }
func (careless) Owner(_ context.Context, n types.NamespacedName) (set, error) {
	if n.Name == "x" {
		return &appsv1.ReplicaSet{}, nil
	}
	return nil, nil
}
func (careless) Owners(context.Context, string) ([]set, error) { return []set{nil, {}}, nil }
func (careless) Children(context.Context, set) ([]pod, error)  { return []pod{nil}, nil }
func (careless) Related(context.Context, set) ([]pod, error)   { return []pod{nil}, nil }
func (careless) OwnersVersion() string                         { return "x" }
func (careless) ChildrenVersion() string                       { return "x" }
func (careless) Event(metav1.Object, string, string, string)   {}

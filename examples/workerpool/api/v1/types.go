// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// A WorkerPool keeps a number of Workers.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=wp
// +kubebuilder:printcolumn:name=Desired,type=integer,JSONPath=.spec.replicas
// +kubebuilder:printcolumn:name=Current,type=integer,JSONPath=.status.replicas
// +kubebuilder:printcolumn:name=Updated,type=integer,JSONPath=.status.updatedReplicas
// +kubebuilder:printcolumn:name=Ready,type=integer,JSONPath=.status.readyReplicas
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
type WorkerPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   WorkerPoolSpec   `json:"spec"`
	Status WorkerPoolStatus `json:"status,omitzero"`
}

// A WorkerPoolSpec is the wanted state of a WorkerPool.
type WorkerPoolSpec struct {
	// Replicas is the wanted number of Workers.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// Selector selects the Workers of the pool. It cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="selector is immutable"
	Selector metav1.LabelSelector `json:"selector"`
	// Template is the template for new Workers. If the template changes, the Workers that were made from
	// the former template are replaced.
	Template WorkerTemplate `json:"template"`
	// MaxUnavailable is the number of Workers that may be missing or unready while Workers are replaced.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	MaxUnavailable int32 `json:"maxUnavailable"`
}

// A WorkerTemplate is the template for new Workers.
type WorkerTemplate struct {
	// Labels must match the selector.
	Labels map[string]string `json:"labels"`
	Spec   WorkerSpec        `json:"spec"`
}

// A WorkerPoolStatus counts the Workers of a pool.
type WorkerPoolStatus struct {
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of ready Workers.
	ReadyReplicas int32 `json:"readyReplicas"`
	// UpdatedReplicas is the number of Workers that were made from the current template.
	UpdatedReplicas    int32 `json:"updatedReplicas"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Selector is the selector in the form that the scale subresource needs.
	Selector string `json:"selector,omitempty"`
	// Conditions contains Available and HeldBack. While Workers cannot be created or deleted, it also
	// contains ReplicaFailure.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// A WorkerPoolList is a list of WorkerPools.
//
// +kubebuilder:object:root=true
type WorkerPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []WorkerPool `json:"items"`
}

// A Worker does the work.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Image,type=string,JSONPath=.spec.image
// +kubebuilder:printcolumn:name=Ready,type=boolean,JSONPath=.status.ready
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=.metadata.creationTimestamp
type Worker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   WorkerSpec   `json:"spec"`
	Status WorkerStatus `json:"status,omitzero"`
}

// A WorkerSpec says what a Worker does.
type WorkerSpec struct {
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
}

// A WorkerStatus is the current state of a Worker.
type WorkerStatus struct {
	Ready bool `json:"ready,omitempty"`
}

// A WorkerList is a list of Workers.
//
// +kubebuilder:object:root=true
type WorkerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Worker `json:"items"`
}

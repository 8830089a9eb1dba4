package main

import corev1 "k8s.io/api/core/v1"

// onlyWhatIsRead saves the memory of what nobody reads of a pod: most of its
// spec and of what it says about containers. A pod from the cache is never
// written back whole; an owner is, with its status: that one stays as it is.
func onlyWhatIsRead(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	pod.Spec = corev1.PodSpec{
		NodeName:       pod.Spec.NodeName,
		InitContainers: sidecars(pod.Spec.InitContainers),
	}
	pod.Status = corev1.PodStatus{
		Phase:                 pod.Status.Phase,
		Conditions:            pod.Status.Conditions,
		ContainerStatuses:     restarts(pod.Status.ContainerStatuses),
		InitContainerStatuses: restarts(pod.Status.InitContainerStatuses),
	}
	return pod, nil
}

// sidecars are the init containers that are restarted always: only their
// restarts count.
func sidecars(containers []corev1.Container) (kept []corev1.Container) {
	for i := range containers {
		c := &containers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kept = append(kept, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
		}
	}
	return kept
}

// restarts keeps nothing of containers that were never restarted.
func restarts(statuses []corev1.ContainerStatus) (kept []corev1.ContainerStatus) {
	for i := range statuses {
		if s := &statuses[i]; s.RestartCount > 0 {
			kept = append(kept, corev1.ContainerStatus{Name: s.Name, RestartCount: s.RestartCount})
		}
	}
	return kept
}

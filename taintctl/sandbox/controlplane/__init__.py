"""The control plane of the sandbox: what kube-scheduler, kube-controller-manager and kubelets do to the objects."""

"""The sandbox's API server: HTTP over the in-memory store, as kubectl and the Kubernetes clients expect it."""

"""Scales the stateful services on Kubernetes by lag, catch-up time and CPU."""

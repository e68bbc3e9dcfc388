"""Capacity of an installation from the measured rates of benchmarks/results."""

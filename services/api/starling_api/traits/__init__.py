"""Computed traits: how far the Spark job is that computes them."""

"""Accumulators of the measures: lifetime, sliding and calendar windows, distributions, panes and sketches."""

"""`python -m starling_normalizer`: start, run, stop."""

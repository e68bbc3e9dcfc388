"""Sequences of steps: folding, the parts of a compiled sequence, and the bounds of what it keeps."""

"""The streaming query under one set of definitions: its transform, its offsets, and the values that were published before."""

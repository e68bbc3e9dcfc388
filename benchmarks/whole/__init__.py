"""What one event costs the whole platform: `python -m benchmarks.whole`, from the edge to the readable membership."""

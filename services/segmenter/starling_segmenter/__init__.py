"""The segmenter: event topics in, membership changes out."""

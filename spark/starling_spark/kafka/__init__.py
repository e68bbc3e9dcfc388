"""Kafka topics as DataFrames and back: sources, decoding, sinks, dead letters and consumer-group offsets."""

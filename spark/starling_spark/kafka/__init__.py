"""Kafka topics as DataFrames and DataFrames to topics: sources, decoding, sinks, dead letters and consumer-group offsets."""

"""Writes topics to read models in Cassandra."""

"""Spark sessions, settings that every job has, and the life of a streaming query."""

"""Sinks: destinations of rows with a key and a growing version, outside of the platform."""

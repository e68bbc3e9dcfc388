"""Segments, computed traits and webhooks over HTTP: commands and queries."""

"""Definitions of segments, computed traits and webhooks: versions, commands, the claims behind a write, and their routes."""

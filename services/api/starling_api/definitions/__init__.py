"""Definitions of segments, computed traits, webhooks and lists: versions, commands, claims and routes."""

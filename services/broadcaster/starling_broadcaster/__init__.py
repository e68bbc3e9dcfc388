"""Broadcaster: lists the members of a segment for the messenger when the instant of a broadcast has come."""

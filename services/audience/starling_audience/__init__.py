"""Audience sync: keeps audiences of other systems equal to segments, one consumer group for each target."""

"""Backfills: Spark jobs that compute the history of new segments: their submission, progress and routes."""

"""Backfills: how a new segment gets its history from a Spark job, and how far the job is."""

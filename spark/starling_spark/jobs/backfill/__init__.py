"""The backfill: the state of new segments from history, computed beside the live traffic."""

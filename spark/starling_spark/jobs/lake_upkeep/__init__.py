"""Maintenance of the lake as a separate job: compaction, expiry of snapshots, removal of orphan files."""

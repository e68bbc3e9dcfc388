"""The lake's upkeep as a job of its own: compaction, expiry of snapshots, removal of files that nothing names."""

"""The lake: everything that was received and everything that became of it, as Iceberg tables."""

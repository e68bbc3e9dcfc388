"""Sessions of Cassandra, prepared statements, and the names of the read models."""

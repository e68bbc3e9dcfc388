"""Topics -> read models in Cassandra."""

"""The embedded stack: Kafka, Cassandra, the registry and every service as supervised processes on one machine."""

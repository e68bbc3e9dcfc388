"""The `starling` command and the embedded stack: real Kafka, Cassandra and registry as supervised processes."""

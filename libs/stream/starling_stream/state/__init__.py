"""State of a task: local store (RocksDB), backing store (Cassandra), restore, standby and flush."""

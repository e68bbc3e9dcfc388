"""What audience sync reads and writes in Kafka and Cassandra."""

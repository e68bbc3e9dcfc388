"""Kafka: transport of whole fetches, partition assignment and transactions."""

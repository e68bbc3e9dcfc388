"""Clients of Kafka, the names of the topics, and reads of whole topics."""

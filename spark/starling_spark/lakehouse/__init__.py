"""Iceberg tables of the lake: layout, schema evolution, positions in Kafka, and maintenance."""

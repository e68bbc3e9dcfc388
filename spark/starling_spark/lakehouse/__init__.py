"""Iceberg tables of the lake: layout, schema evolution, Kafka offsets in snapshots, and maintenance."""

"""The lake: all received items and all records that follow from them, as Iceberg tables."""

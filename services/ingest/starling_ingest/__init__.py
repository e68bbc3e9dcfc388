"""HTTP in, ingest topics out."""

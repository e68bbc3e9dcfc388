"""The HTTP service that publishes tracking calls to the ingest topics."""

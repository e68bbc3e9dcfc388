"""Imports: files of events or of traits as items of the ingest API."""

"""Ingest topics to event topics: validated, dated, de-duplicated, with the profile, enriched from the catalog."""

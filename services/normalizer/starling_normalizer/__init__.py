"""The stream service that turns ingest records into events: validated, dated, de-duplicated and enriched."""

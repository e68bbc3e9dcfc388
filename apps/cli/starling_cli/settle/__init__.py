"""Waiting until every stage has processed all events accepted so far."""

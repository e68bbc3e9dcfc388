"""Materialised views: events folded into rows that the API answers with."""

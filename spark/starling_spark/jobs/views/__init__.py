"""Materialised views: aggregates of events that the API serves."""

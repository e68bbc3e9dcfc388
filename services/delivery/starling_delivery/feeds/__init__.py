"""Feeds with targets of their own: digests to Slack and Teams, and records to topics of customers."""

"""Digests of membership changes: what they contain, and the messages of Slack and Teams that show it."""

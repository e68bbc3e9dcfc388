"""Knowing when everything accepted so far has gone through every stage."""

"""API tokens as objects of the API: created, rotated and revoked."""

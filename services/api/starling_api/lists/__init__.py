"""Uploaded lists: uploads, members and their routes."""

"""The write operations on definitions."""

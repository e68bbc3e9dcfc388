"""Keeps the parts of one instance running: processes, checks, and the state machine of a part."""

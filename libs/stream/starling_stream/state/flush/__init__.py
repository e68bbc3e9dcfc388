"""Committed states to the backing store, in a thread of its own."""

"""The computed traits in force, and their plans."""

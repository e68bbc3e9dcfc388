"""The embedded stack: its parts, and the supervisor that keeps them running."""

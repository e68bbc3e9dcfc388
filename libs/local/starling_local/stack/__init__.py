"""The embedded stack: what its parts are, and the process that keeps them running."""

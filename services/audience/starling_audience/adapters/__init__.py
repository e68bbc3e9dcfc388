"""The adapters: pure modules that build requests from changes, and read the answers."""

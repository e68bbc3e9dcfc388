"""The `starling` command."""

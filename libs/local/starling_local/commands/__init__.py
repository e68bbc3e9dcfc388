"""What each command does; `cli` puts them together."""

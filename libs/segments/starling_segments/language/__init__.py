"""The language itself: the tree of a definition, operators, paths, dates and durations, and validation errors."""

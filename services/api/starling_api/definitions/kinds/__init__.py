"""The kinds of definitions: what each of them is, and how its documents are read."""

"""One file a view; each is found by itself. A file here has a `VIEW`, and nothing else knows of it."""

"""The demo: real purchases from the first event to the last webhook, compared with a pandas computation."""

"""A replay compared with the feed and with the profiles on events."""

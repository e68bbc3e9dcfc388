"""What is done for one target: read, gather, send, and continue after failures."""

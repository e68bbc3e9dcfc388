"""What became of the accepted items."""

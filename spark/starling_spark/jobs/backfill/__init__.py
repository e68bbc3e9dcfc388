"""The past of new segments, gathered beside the live traffic."""

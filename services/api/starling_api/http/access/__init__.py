"""Who may call, and how often: tokens and roles, rate limits, and the gate of expensive requests."""

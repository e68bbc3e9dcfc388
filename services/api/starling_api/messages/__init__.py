"""Messages to people: what the messenger keeps of each, explicit consent, and suppressed addresses."""

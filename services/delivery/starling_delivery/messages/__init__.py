"""What messages to people need beyond the kit: definitions, suppressions, consent, the last look, and transactions."""

"""The rules in force, pure: definitions folded and compiled, what they see of events, what the past leaves for them."""

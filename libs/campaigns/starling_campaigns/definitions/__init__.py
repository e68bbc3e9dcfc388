"""The documents of campaigns, policies and targets: each is parsed whole, or refused with all its validation errors."""

"""The callbacks of providers: what became of a message after the provider took it."""

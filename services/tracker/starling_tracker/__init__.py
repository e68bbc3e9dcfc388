"""The public service behind the links of messages: opens, clicks, and unsubscribing."""

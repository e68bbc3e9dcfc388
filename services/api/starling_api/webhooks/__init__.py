"""The test call of webhooks: an example change that is sent at once, and the endpoint's answer."""

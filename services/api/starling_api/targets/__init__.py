"""The test call of targets of feeds: an example digest that is sent at once, or a check of the topic."""

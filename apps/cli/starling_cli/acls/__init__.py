"""The rights of each service at the broker, in the forms that operators use."""

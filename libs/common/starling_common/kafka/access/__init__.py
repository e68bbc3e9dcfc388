"""The rights of each service at the broker: declared, compared with the broker, granted and checked at the start."""

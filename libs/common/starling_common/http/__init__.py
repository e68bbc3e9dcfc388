"""The HTTP server of the public services, problem details, and checks of addresses."""

"""Job `profiles`: computed traits. Each trait is an event measure of a user, evaluated at stream time."""

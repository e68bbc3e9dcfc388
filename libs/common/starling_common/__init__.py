"""The vocabulary of the platform: values, outcomes, wire formats, settings, logs, metrics, health, sessions."""

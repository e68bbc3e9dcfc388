"""Modules that every service shares: values, outcomes, wire formats, settings, logs, metrics, health, sessions."""

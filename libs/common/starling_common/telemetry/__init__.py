"""Logs, metrics and health checks of a process."""

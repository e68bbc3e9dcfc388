"""Instants and the time zones of workspaces."""

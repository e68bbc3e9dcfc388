"""Delivers membership changes through channels and publishes the outcomes. Each process serves one channel."""

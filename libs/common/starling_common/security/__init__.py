"""Sealed secrets, and TLS contexts of clients."""

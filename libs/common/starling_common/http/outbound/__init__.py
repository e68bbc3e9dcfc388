"""Connections to endpoints: names are resolved in bounded time, and no connection reaches a private network."""

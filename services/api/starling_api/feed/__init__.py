"""The membership feed over HTTP: pages and server-sent events."""

"""The examples of `/openapi.json`, by subject."""

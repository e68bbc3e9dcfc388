"""HTTP for all routes: authentication, errors as problem+json, pagination, idempotency and the OpenAPI document."""

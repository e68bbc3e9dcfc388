"""The OpenAPI document: schemas of requests and responses, examples, and the pages that show it."""

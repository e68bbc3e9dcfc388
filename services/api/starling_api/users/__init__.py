"""Users and members of segments: read models, queries, export and their routes."""

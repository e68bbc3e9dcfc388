"""The Spark jobs that the API starts: when, and where they run."""

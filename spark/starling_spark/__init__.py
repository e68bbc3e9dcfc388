"""Spark jobs: what is heavy, long or wide, on the same events. One folder a job."""

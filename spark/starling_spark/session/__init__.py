"""Spark sessions, the settings of every job, and the lifecycle of streaming queries."""

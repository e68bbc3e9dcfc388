"""Imports: files that the Spark job `imports` reads: their requests, progress, rejected rows and routes."""

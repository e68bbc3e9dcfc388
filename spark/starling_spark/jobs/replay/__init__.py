"""The job `replay`: who was in which segment as of an instant, worked out again from history, to audit or to repair."""

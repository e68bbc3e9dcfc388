"""The job `replay`: memberships as of an instant, computed from history, for audit and repair."""

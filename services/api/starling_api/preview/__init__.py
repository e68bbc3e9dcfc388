"""Preview, diff and explanation of segments: requests, sampling, estimates and routes."""

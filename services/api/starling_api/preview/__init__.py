"""Preview, diff and explanation of segments: requests, sampling of users, estimates, and their routes."""

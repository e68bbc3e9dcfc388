"""The self-audit: memberships of sampled users, evaluated again and compared with what the platform shows and publishes."""

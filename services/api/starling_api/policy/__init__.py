"""The check of the policy for one message to one user."""

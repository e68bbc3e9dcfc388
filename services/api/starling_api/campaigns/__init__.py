"""Previews and dry runs of campaigns, and the routes of campaigns, targets and the policy of a workspace."""

"""The channel kit, and one small process a channel: membership changes in, messages out, outcomes back."""

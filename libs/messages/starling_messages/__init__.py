"""The messages of campaigns to one person: what triggers, decides and concludes them. No I/O, no clock."""

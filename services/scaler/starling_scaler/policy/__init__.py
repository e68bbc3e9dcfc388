"""The decision about the replicas of a stage. Pure: no clock, no I/O, no framework."""

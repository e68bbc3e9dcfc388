"""Processing without I/O: ordered merge, unit of work, timers, and the batches that become transactions."""

"""The hot path on Faust: transport, tasks, ordered merge, unit of work, state stores, timers."""

"""The state of a task from the local store, the backing store and the changelog; standby copies."""

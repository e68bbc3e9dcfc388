"""Changes of definitions: the definitions read so far, the history of a task, and its switch to a new plan."""

"""SQL over the lake: the check of a statement, its tables, event types, its schedule and the states of its runs. Pure."""

"""Pure core: the parts of the stack, each with its command, settings, checks and the parts that it needs."""

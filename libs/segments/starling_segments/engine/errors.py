"""Pure core: what is raised rather than loop for ever. A module of its own, since mypyc compiles no exceptions."""


class StuckTimer(RuntimeError):
    """Firing what is due left it due: the program or the state is broken, and going on would never end."""

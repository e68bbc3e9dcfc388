"""Templates: a subset of Jinja2 with a bounded cost, checked on the syntax tree, and its rendering in a sandbox."""

"""The routes, one module a subject. They know HTTP, and nothing else."""

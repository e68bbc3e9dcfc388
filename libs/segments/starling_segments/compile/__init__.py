"""Compiler: the trees of all definitions to one plan."""

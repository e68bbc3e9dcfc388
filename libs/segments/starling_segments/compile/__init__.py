"""Compiler: trees of definitions to one plan."""

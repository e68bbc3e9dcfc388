"""Computed traits in SQL: the check of a statement, its tables, its schedule and the states of its runs. Pure."""

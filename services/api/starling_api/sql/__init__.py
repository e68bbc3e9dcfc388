"""Statements in SQL of computed traits and views: their runs, which a Spark job performs."""

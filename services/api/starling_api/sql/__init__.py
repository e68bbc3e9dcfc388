"""Statements in SQL of computed traits, views and checks of event types: their runs, which a Spark job performs."""

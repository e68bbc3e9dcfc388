"""The checks of a result: how they are measured, what a failed one stops, and the table of their outcome."""

"""The parts of `delivery.py`, one module each, and the records, processes and receivers that they have in common."""

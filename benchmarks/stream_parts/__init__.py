"""The parts of `stream.py`, one module each, and the load and the probes that they have in common."""

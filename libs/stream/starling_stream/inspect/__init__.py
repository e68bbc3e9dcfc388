"""Inspection of states for operators: inspect, verify and rebuild."""

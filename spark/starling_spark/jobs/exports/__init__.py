"""Exports: tables of the lake, memberships, profiles and computed traits to sinks, incrementally."""

"""Evaluation: the state of one user, its serialisation, and the plan that folds events, profiles and timers through it."""

"""Evaluation: the state of a user, its serialisation, the plan and the evaluator that applies the plan to a state."""

"""The normalizer's inputs of a user in their order, and their results, in the Python workers of Spark."""

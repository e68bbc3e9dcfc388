"""Past records to user states under the plan in force, in the Python workers of Spark."""

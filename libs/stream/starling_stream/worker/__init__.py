"""A worker process: its assigned tasks, its consumer group and the loop that runs batches."""

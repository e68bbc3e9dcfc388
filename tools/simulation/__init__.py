"""A discrete-event simulation of the pipeline with measured service times: `make simulate`."""

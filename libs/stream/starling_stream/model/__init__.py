"""Records, rows and ports of the stream layer, the processor protocol and the settings of a worker."""

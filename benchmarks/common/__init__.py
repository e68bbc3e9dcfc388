"""The common code of the benchmarks: stack, load, watched processes, results and the table of the goals. It imports no command."""

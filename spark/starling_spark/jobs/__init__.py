"""The Spark jobs, a package each; a job never imports another one."""

"""Where workers write the files of the tables, and with which settings."""

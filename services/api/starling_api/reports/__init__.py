"""The audience report and materialised views, which Spark jobs write and the API serves."""

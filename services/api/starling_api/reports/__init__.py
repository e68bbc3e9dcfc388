"""The audience report and the materialised views. Spark jobs write them, the API reads them."""

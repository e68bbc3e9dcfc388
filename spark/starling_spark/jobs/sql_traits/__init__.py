"""The job `sql_traits`: computed traits in SQL, over the lake."""

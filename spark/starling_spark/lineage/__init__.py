"""Events of OpenLineage, which jobs emit themselves: a listener of Spark does not see what `foreachBatch` writes."""

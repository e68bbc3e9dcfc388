"""Pure core: a batch of records to rows, tallies and progress, in one order. No Kafka and no database."""

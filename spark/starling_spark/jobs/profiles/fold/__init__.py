"""Pure core: matches, folds and outputs of one Kafka partition of a micro-batch."""

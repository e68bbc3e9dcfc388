"""Whether and when a message is sent: lanes of targets, circuit breakers, and the dispatcher. No Kafka and no HTTP."""

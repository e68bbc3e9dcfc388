"""From a parsed body to the broker: records, acknowledgements, each workspace's share of the queue, and the low watermark."""

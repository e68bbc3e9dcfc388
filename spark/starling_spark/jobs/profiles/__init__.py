"""Job `profiles`: computed traits. What a person did, measured by definition, as one value a trait that follows stream time."""

"""Dead letters, definitions, membership changes and delivery outcomes as records and as JSON."""

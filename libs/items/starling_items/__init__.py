"""The pure stages of the normalizer, which turn an item into events. Spark runs them over the raw items of the lake too."""

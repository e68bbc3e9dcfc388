"""What a call becomes: the stages of the normalizer, each pure, which Spark runs over the raw items of the lake too."""

"""The states that the segmenter keeps, as stored. No topic and no plan."""

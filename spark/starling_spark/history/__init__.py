"""Past records from the lake and the topics, in the order in which the segmenter processed them."""

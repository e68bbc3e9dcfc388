"""The records that the segmenter reads and writes: membership changes, account messages, progress, and the codecs of the topics."""

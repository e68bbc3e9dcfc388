"""The job `reprocess`: the normalizer's own stages over all that was received, into event tables beside those of the lake."""

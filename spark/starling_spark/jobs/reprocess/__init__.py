"""The job `reprocess`: the normalizer's stages over all received items, into corrected event tables beside the lake's."""

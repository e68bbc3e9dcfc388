"""The main job on real data, from the first event to the last delivered change, checked against pandas."""

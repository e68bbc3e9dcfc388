"""Parser: untrusted JSON to a tree, or every validation error in it; and the JSON Schema of a definition."""

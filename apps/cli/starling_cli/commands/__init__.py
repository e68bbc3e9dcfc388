"""The commands; `cli` registers them."""

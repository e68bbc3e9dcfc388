"""Pure core: tables, columns and files of the lake: their layout, and its evolution."""

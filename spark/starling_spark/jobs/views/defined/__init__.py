"""One file for each view, found automatically. A file defines `VIEW`; no list has to be updated."""

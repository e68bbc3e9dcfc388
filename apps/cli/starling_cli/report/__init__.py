"""The audience report as one self-contained HTML page."""

"""The job `audience_report`: size, entries, exits, retention and overlap of segments by day."""

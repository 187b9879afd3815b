"""The benchmark report: terminal tables, figure and HTML page."""

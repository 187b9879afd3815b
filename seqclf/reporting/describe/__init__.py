"""The dataset report: terminal tables and HTML page."""

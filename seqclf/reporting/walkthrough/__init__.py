"""The walkthrough of rows through a model: terminal output and HTML page."""

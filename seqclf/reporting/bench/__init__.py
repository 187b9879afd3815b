"""The benchmark in the terminal, as a PNG and as an HTML page."""

"""Terminal tables, HTML pages and figures."""

"""The report of a training run or an evaluation, as an HTML page."""

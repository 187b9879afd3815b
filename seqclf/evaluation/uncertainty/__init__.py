"""Uncertainty of scores: intervals, design effects of grouped rows, paired comparisons."""

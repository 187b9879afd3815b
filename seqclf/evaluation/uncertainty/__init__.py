"""What chance explains: intervals, design effects of grouped rows, paired comparisons."""

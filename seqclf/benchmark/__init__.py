"""Benchmark of dynamic against static graphs: training time, memory, and structure that changes between steps."""

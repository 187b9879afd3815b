"""Encoders of each field kind: fit on training rows, turn tokens into arrays, and decode them."""

"""Prediction by actors of Ray."""

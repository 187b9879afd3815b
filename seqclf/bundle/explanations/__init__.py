"""Contributions of tokens to a prediction."""

"""Rows followed through a trained model: what each stage makes of them."""

"""Encoders of all field kinds. An encoder is fit on training rows, encodes tokens as arrays, and decodes arrays."""

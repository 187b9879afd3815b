"""The Python API for programs and notebooks: train models, open runs and predict."""

"""The exported artifact → predictions. No module here imports torch."""

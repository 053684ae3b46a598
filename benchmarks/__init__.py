"""Benchmarks: every time and size that the documentation quotes comes from a command here."""

"""REITOS: notebooks whose kernels start at once and keep their state."""

__version__ = "0.1.0"

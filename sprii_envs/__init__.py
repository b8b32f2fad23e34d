"""Gymnasium environments with persistent properties, relation samplers and episode banks."""

__version__ = "0.1.0"

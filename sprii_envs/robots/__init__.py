"""Recorded robots: loaders of what was published, and simulated stand-ins where the recordings are absent."""

"""Recorded robots: loaders of published recordings, and stand-ins that are simulated where the recordings are absent."""

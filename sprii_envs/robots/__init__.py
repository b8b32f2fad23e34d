"""Recorded robots: loaders of published recordings, and stand-ins of them that are simulated."""

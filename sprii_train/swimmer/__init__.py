"""Frozen predictors of Swimmer's segments, and updates of their contexts (`app:fixed-weight`)."""

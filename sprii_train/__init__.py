"""Align and Cross for world-model learners, and measures of what was learned."""

"""Scenes of CoPhy: what learners see of objects, the networks that they share, and what is measured of them."""

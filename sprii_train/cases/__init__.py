"""Prediction cases of a trained source: presents, donors' histories and futures, with its frozen features."""

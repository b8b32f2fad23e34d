"""Formation, Use and Value of frozen weights, the statistics of all three, and the propositions as functions."""

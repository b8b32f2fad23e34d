"""Fields of equations: windows of two cases of a system, errors and probes of an operator that predicts them."""

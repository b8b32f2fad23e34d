"""Fields of equations: windows of two cases of one system, errors, probes and donors of an operator that predicts them."""

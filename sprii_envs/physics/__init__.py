"""Pure batched physics: array functions of (state, action, parameters) with a leading batch axis."""

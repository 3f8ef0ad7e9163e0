"""Using a market from Python: connect, post a model, watch it being trained, have it back."""

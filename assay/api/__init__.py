"""The Python API: connect to a market, post a model, watch it being trained, fetch it."""

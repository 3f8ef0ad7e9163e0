"""Heavy work, done by worker processes that have a device each, and neither keys nor chain nor network."""

"""The market in a browser: read-only pages that follow the chain as it moves, and as it is reorganised."""

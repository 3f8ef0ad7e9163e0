"""The market in a browser: read-only pages that follow the chain, including its reorganisations."""

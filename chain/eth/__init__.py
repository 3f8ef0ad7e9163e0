"""Adapter of any Ethereum chain: JSON-RPC, ABI, headers, events, transactions with a journal, key files,
Anvil."""

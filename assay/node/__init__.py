"""What every role does: the loop, reading the market, checking claims by replay, upkeep, the challenger's
part."""

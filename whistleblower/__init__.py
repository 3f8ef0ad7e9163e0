"""The whistleblower: replays everything it can afford and disputes what is wrong."""

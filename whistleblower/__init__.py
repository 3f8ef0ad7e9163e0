"""The whistleblower role: replays as much as it can afford and disputes the faults it finds."""

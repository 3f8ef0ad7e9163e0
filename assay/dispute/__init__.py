"""Playing a dispute off chain: traces and replays, what each move shows, and the evidence for the arbiter."""

"""The verifier role: replays the segments sampled for it, votes, and challenges the faults it finds."""

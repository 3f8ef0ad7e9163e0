"""The verifier: replays the sampled segments it was drawn for, attests, and reports what it finds."""

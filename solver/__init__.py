"""The solver: takes shards, trains them, commits to every step, and defends what it committed."""

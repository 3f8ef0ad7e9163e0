"""The solver role: takes shards, trains them, commits every segment's state, and defends its claims."""

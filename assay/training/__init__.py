"""Models, optimisers, low-communication algorithms, datasets, and how they become a job's programs."""

"""Models, optimisers, low-communication algorithms and datasets, and how they become the programs of a job."""

"""Models, optimisers, outer algorithms and datasets, and their conversion to a job's programs."""

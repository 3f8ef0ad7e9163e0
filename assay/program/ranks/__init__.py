"""One step on several processes at once: each takes its rows of the batch, and all get the same bits."""

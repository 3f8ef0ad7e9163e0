"""The client role: posts a job, follows it, and fetches and verifies the model."""

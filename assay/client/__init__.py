"""The client: posts a job, follows it, and fetches and checks the model."""

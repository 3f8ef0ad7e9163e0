"""The job file: read, written from a template, and made into what a client publishes and posts."""

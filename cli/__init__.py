"""The ``assay`` command: the only reader of environment variables and configuration files, and the place
where ports meet
their adapters.
"""

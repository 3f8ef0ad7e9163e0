"""The commands: a file for each noun of the ``assay`` command."""

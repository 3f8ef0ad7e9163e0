"""The commands: one file for each noun of the ``assay`` command."""

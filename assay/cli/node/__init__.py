"""Running a role as a process: its face on HTTP, the check of the machine, drill options."""

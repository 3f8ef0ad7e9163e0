"""Running a role as a process: its face on HTTP and the check of the machine."""

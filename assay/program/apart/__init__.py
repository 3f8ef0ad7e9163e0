"""Computing a program in a process of its own."""

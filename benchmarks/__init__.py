"""What holdfast reaches, measured beside what the machine itself can do."""

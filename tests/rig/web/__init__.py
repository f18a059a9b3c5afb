"""The page in tests: its server, a real browser, and the run that it shows."""

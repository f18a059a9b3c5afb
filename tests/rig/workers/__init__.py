"""Worker processes under test: their messages and ends, and what every launcher does."""

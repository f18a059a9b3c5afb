"""Files as sources of rows: `finding.py` has the base class, and one module each format."""

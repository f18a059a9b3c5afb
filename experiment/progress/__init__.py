"""The output of a run: a table in a terminal, lines in a log, HTML in a notebook.

`summarizer.py` makes a `Summary` from the machine; the views draw it and read nothing else. Start
reading at `views.py`. `wording.py` and `node_wording.py` have the texts that all views share.
`trial_table.py` selects the table's trials and columns, and `terminal_view.py` prints it.
`eta.py`, `table_layout.py` and similar modules are pure.
"""

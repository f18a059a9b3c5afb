"""The output of a run: a table in a terminal, lines in a log, HTML in a notebook.

`summarizer.py` makes a `Summary` from the machine; the views draw it and read nothing else. Start
reading at `views.py`. `wording.py` has the texts that all views share, `trial_table.py` the table
and the lines that `terminal_view.py` prints.
"""

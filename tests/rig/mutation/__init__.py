"""Experiments whose files somebody damaged or forged, and every command that reads them.

`specimens` makes the experiments, `forms` knows the files' formats, `damage` changes one file,
`readings` lists the commands and runs each in a process of its own, `judge` says what none of them
may do, and `campaign` puts it together: `python -m tests.rig.mutation.campaign --help`.
"""

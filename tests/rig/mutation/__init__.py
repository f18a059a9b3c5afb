"""Experiments with damaged or forged files, and every command that reads them.

`specimens` creates the experiments, `forms` knows the files' formats, `damage` changes one file,
`readings` lists the commands and runs each in its own process, `judge` has the rules for them, and
`campaign` runs it all: `python -m tests.rig.mutation.campaign --help`.
"""

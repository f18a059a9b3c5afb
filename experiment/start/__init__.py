"""A request becomes a run's plan, or an error that says why it cannot.

Start reading at `fit.py`: it opens the experiment, takes its lock and runs what `planning.py`
decides. A restore is a request too: `restore_request.py` makes it. `extension.py` and
`resume_checks.py` compare what a script asks for with what the experiment is. This folder may
import every other room of the experiment but `api`. No process is started here.
"""

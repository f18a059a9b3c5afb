"""What an experiment does next, as a pure machine: events in, effects out.

No process, socket, file or clock is known here (a contract holds it). Start reading at
`machine.py`, then `events.py` and `effects.py`; `policy.py` is the seam of trial schedulers, and
`policies/` has the ready-made ones. `searchers/` has what suggests configs. Stands on
`holdfast.trial`.
"""

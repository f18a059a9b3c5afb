"""Decides what an experiment does next, as a pure machine: events in, effects out.

It knows no process, socket, file or clock (import-linter checks this). Start reading at
`machine.py`, then `events.py` and `effects.py`. `policy.py` is the interface of trial schedulers,
and `policies/` has the ready-made ones. `searchers/` suggests configs. It may import only
`holdfast.trial`.
"""

"""Decides what an experiment does next, as a pure machine: events in, effects out.

It knows no process, socket, file or clock (import-linter checks this; only a search that a script
saves itself writes its file). Start reading at `machine.py`, then `events.py` and `effects.py`.
`policy.py` is the interface of trial schedulers, and `policies/` has the ready-made ones.
`searchers/` suggests configs. Of the rooms it may import only `holdfast.trial`.
"""

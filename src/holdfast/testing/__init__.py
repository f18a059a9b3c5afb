"""For tests of your own schedulers: the real machine, event by event, without a process.

`rehearsal` feeds it, `lockstep` plays a whole study and cuts it off where you like, `invariants`
says what must hold after each event.
"""

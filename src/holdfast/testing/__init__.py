"""For tests of your own schedulers: the real machine, event by event, without a process.

`rehearsal` feeds the machine, `lockstep` plays a whole study and interrupts it at the events that
you name, and `invariants` checks the machine after each event.
"""

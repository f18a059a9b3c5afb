"""For tests of your own schedulers: the real machine, event by event, without a process.

In `rehearsal`, `Rehearsal` feeds the machine, and `Lockstep` plays a whole study and interrupts it
at the events that you name. `invariants` checks the machine after each event.
"""

"""The machine under random but possible events: a shell with dice and no processes.

After every event the invariants hold, a shell could perform the effects, and the snapshot and the
journal give the same machine. At the end every run must finish. A failure is shrunk, and shown as
the list of its events.

An event of a new kind needs a rule in `workers` or `any_order` that makes it happen
(`self.perform(self.run.handle(event))`), an effect a case in `perform_one` of `shell`; the
conditions that must hold are in `holdfast.testing.invariants`.
"""

from hypothesis import HealthCheck, settings

from tests.scheduler.any_order.any_order import AnyOrder

TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=2 * settings().max_examples,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

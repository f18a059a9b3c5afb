"""The launcher's side of the sampler: asks it about the workers, and adds up what it says.

The sampler is started once a worker has run for `PERIOD_S`, so short runs do without it. If it
ends or hangs, workers have no further samples, and nothing waits for it.

While no worker computes, the pause between two samples doubles, up to `LONGEST_S`: a process that
uses no CPU gets no more memory, either. A sample reads the whole table of processes (30 ms with 64
workers), which was a third of what an idle run used.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence

from holdfast.runtime.errors import WireError
from holdfast.runtime.process_control import Title
from holdfast.runtime.service import Service
from holdfast.runtime.usage.used import Account, Sample, Spent, Used
from holdfast.runtime.wire import Message, checked

PERIOD_S = 5.0
LONGEST_S = 60.0
# A worker that uses less than this part of a core, and no GPU, is idle.
_IDLE_SHARE = 0.01
_ENTRY = "holdfast.runtime.usage.sampler:serve"
_TITLE = Title("sampler")


class Sampled:
    """One worker: its samples, and since when it runs."""

    def __init__(self, now: float, gpus: Sequence[str]) -> None:
        self.began = now
        self.gpus = gpus
        self.account = Account()
        self._last: tuple[float, float] | None = None

    def computes(self, sample: Sample, now: float) -> bool:
        """True if it has computed since the last sample. The first one cannot tell."""
        before, self._last = self._last, (now, sample.cpu_s)
        if before is None or sample.gpu_utilisation:
            return True
        since, cpu_s = before
        return sample.cpu_s - cpu_s > _IDLE_SHARE * (now - since)


class Sampling:
    """The samples of all workers of a launcher."""

    def __init__(
        self,
        pids: Callable[[], Mapping[str, int]],
        tell: Callable[[str, Used], None],
        environ: Mapping[str, str],
    ) -> None:
        """`pids` returns those of the workers that run, by name. `tell` is called with what a
        worker has used so far, after each sample."""
        self._loop = asyncio.get_running_loop()
        self._pids = pids
        self._tell = tell
        self._environ = environ
        self._workers: dict[str, Sampled] = {}
        self._service: Service | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pause_s = PERIOD_S
        self._is_asked = False
        self._is_over = sys.platform != "linux"

    def began(self, name: str, gpus: Sequence[str]) -> None:
        """A worker is launched that may use these GPUs."""
        self._workers[name] = Sampled(self._loop.time(), gpus)
        if self._timer is not None and self._pause_s > PERIOD_S:
            self._timer.cancel()
            self._timer = None
        self._pause_s = PERIOD_S
        self._arm()

    def ended(self, name: str, spent: Spent | None = None) -> Used | None:
        """What the worker has used; None if nobody knows."""
        known = self._workers.pop(name, None)
        if known is None:
            return None
        if spent is None:
            return known.account.so_far(self._loop.time() - known.began)
        return known.account.at_exit(spent)

    def kill(self) -> None:
        self._end()
        if self._service is not None:
            self._service.kill()

    async def close(self) -> None:
        """Kill the sampler, which has nothing to lose. How it ends is nobody's concern."""
        self.kill()
        if self._service is not None:
            await self._service.close()

    def _end(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def _ask(self) -> None:
        """Ask about the workers that have run for a while. The next question follows the
        answer."""
        self._timer = None
        now, pids = self._loop.time(), self._pids()
        asked = {
            name: [pids[name], list(known.gpus)]
            for name, known in self._workers.items()
            if pids.get(name) and now - known.began >= PERIOD_S * 0.9
        }
        if asked and self._has_service():
            assert self._service is not None
            self._is_asked = True
            self._service.send(["sample", asked])
        else:
            self._arm()

    def _arm(self) -> None:
        is_due = self._timer is None and not self._is_asked
        if is_due and self._workers and not self._is_over:
            self._timer = self._loop.call_later(self._pause_s, self._ask)

    def _has_service(self) -> bool:
        """Start it if it has not been started. If that fails, or it has ended, none will be."""
        if self._service is None and not self._is_over:
            try:
                self._service = Service(
                    _ENTRY, self._on_message, environ=self._environ, title=_TITLE
                )
                self._service.ended.add_done_callback(lambda _: self._end())
            except OSError:
                self._is_over = True
        return not self._is_over

    def _on_message(self, message: Message) -> None:
        match message:
            case ["samples", dict(samples)]:
                compute = [self._add(name, plain) for name, plain in samples.items()]
            case _:
                raise WireError(f"not a message of the sampler: {message!r:.100}")
        self._pause_s = PERIOD_S if any(compute) else pause_after(self._pause_s)
        self._is_asked = False
        self._arm()

    def _add(self, name: str, plain: object) -> bool:
        """True if the worker has computed since its last sample, or may have."""
        sample = checked(Sample, plain)
        known = self._workers.get(name)
        if known is None:  # it has ended meanwhile
            return False
        now = self._loop.time()
        computes = known.computes(sample, now)
        known.account.add(sample)
        used = known.account.so_far(now - known.began)
        if used is not None:
            self._tell(name, used)
        return computes


def pause_after(pause_s: float) -> float:
    """The pause after a sample in which no worker computed."""
    return max(PERIOD_S, min(2 * pause_s, LONGEST_S))

"""A campaign of damaged and forged files: `python -m tests.rig.mutation.campaign --help`.

Each mutation changes one file of an experiment; then every command reads it, and one of the ways
to continue or repair it is tried. `judge` has the rules that all of them must follow.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig.mutation import judge, specimens
from tests.rig.mutation.damage import Damage, damage_one
from tests.rig.mutation.readings import Reader, Reading

_Series = tuple[tuple[str, ...], ...]

_LOOKS: _Series = (
    ("ls", "STORAGE"),
    ("ls", "STORAGE", "--json"),
    ("show", "RUN"),
    ("show", "RUN", "--json"),
    ("best", "RUN", "--json"),
    ("best", "RUN", "--scope", "all"),
    ("logs", "RUN", "0"),
    ("logs", "RUN", "1", "--error"),
    ("export", "RUN", "--rows", "--format", "json"),
    ("export", "RUN", "--format", "csv"),
    ("replay", "RUN", "--scheduler", "asha"),
    ("doctor", "verify", "RUN"),
    ("doctor", "verify", "RUN", "--json"),
    ("doctor", "gc", "RUN"),
    ("python", "analysis", "RUN"),
    ("python", "can_restore", "RUN"),
)
# Then one of these series: each may change the experiment; the readings before must not.
_CHANGES: tuple[_Series, ...] = (
    (("python", "results", "RUN"), ("python", "fit", "RUN")),
    (("python", "auto", "RUN"),),
    (("doctor", "repair", "RUN"), ("doctor", "gc", "--yes", "RUN"), ("resume", "RUN", "--json")),
    (("doctor", "sync", "RUN"), ("doctor", "repair", "RUN"), ("show", "RUN", "--json")),
)


@dataclass(slots=True)
class Tally:
    """The mutations tried so far."""

    mutations: int = 0
    by_damage: Counter[str] = field(default_factory=Counter)
    readings: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, object]:
        """The figures for `--json`."""
        return {
            "mutations": self.mutations,
            "damages": dict(self.by_damage),
            "readings": dict(self.readings),
            "rules": list(judge.RULES),
            "broken": dict(self.broken),
        }

    def lines(self) -> Iterator[str]:
        """The figures, as they are printed at the end."""
        for name, counter in (("damage", self.by_damage), ("reading", self.readings)):
            yield from (f"{n:7} {name}: {what}" for what, n in sorted(counter.items()))
        yield f"{self.mutations:7} mutations, {self.readings.total()} readings"
        yield from (f"{n:7} broken: {what}" for what, n in sorted(self.broken.items()))
        yield f"{self.broken.total():7} rules broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A rule that a reading broke."""

    kind: str
    seed: int
    damage: Damage
    argv: tuple[str, ...]
    problem: str

    def __str__(self) -> str:
        return (
            f"{self.problem}\n  {' '.join(self.argv)}\n  after {self.damage.path}: "
            f"{self.damage.what}\n  (kind {self.kind!r}, seed {self.seed})"
        )


@dataclass(frozen=True, slots=True)
class _Sound:
    """What a reading says of the undamaged specimen, and how many epochs it repeats."""

    reading: Reading
    repeated: int


class Place:
    """One specimen with its reader: its mutations run one after the other."""

    def __init__(self, kind: str, script: Path, folder: Path, *, deadline_s: float) -> None:
        self._specimen = specimens.make(kind, script, folder)
        self._folder = folder
        self._deadline_s = deadline_s
        self._reader = Reader(script, self._specimen.environ(folder / "home"))
        self._sound: dict[_Series, dict[tuple[str, ...], _Sound]] = {}

    def close(self) -> None:
        self._reader.__exit__(None, None, None)

    def play(self, seed: int, tally: Tally) -> Iterator[Finding]:
        """Damage the specimen as `seed` says, read it in every way, and change it in one."""
        specimen = self._specimen
        damage, changes = self._damaged(seed)
        if unread := [series for series in (_LOOKS, changes) if series not in self._sound]:
            for series in unread:
                self._sound[series] = self._read_sound(series)
            damage, changes = self._damaged(seed)
        tally.mutations += 1
        tally.by_damage["raw: " + damage.what if damage.is_raw else "forged values"] += 1
        is_told = False
        steps = [(False, *each) for each in self._sound[_LOOKS].items()]
        steps += [(True, *each) for each in self._sound[changes].items()]
        for may_write, argv, sound in steps:
            tally.readings[" ".join(argv)] += 1
            case = self._case(damage, argv, sound, may_write=may_write, is_told=is_told)
            for problem in judge.problems(case):
                tally.broken[problem.partition(":")[0]] += 1
                yield Finding(
                    kind=specimen.kind, seed=seed, damage=damage, argv=argv, problem=problem
                )
            is_told = is_told or (may_write and judge.is_loud(case))

    def _damaged(self, seed: int) -> tuple[Damage, _Series]:
        """Damage the specimen; also returns how it is to be continued or repaired."""
        chance = random.Random(seed)
        self._specimen.reset()
        return damage_one(self._specimen.world, chance), chance.choice(_CHANGES)

    def _read_sound(self, series: _Series) -> dict[tuple[str, ...], _Sound]:
        self._specimen.reset()
        return {
            argv: _Sound(self._perform(argv), self._specimen.epochs_repeated) for argv in series
        }

    def _case(
        self,
        damage: Damage,
        argv: tuple[str, ...],
        sound: _Sound,
        *,
        may_write: bool,
        is_told: bool,
    ) -> judge.Case:
        specimen = self._specimen
        canary, experiment = judge.digest(specimen.canary), judge.digest(specimen.world)
        reading = self._perform(argv)
        return judge.Case(
            damage=damage,
            reading=reading,
            expected=sound.reading,
            canary=(canary, judge.digest(specimen.canary)),
            experiment=(experiment, judge.digest(specimen.world)),
            may_write=may_write,
            redone=specimen.epochs_repeated - sound.repeated,
            is_told=is_told,
        )

    def _perform(self, argv: tuple[str, ...]) -> Reading:
        specimen = self._specimen
        places = {"STORAGE": str(specimen.experiment.parent), "RUN": str(specimen.experiment)}
        given = [places.get(word, word) for word in argv]
        return self._reader.perform(*given, folder=self._folder, deadline_s=self._deadline_s)


def play(
    script: Path,
    folder: Path,
    seeds: Mapping[str, Sequence[int]],
    tally: Tally,
    *,
    jobs: int = 1,
    deadline_s: float,
) -> list[Finding]:
    """Mutations of each kind with these seeds, `jobs` kinds at once.

    Ctrl-C ends it after the mutations at hand: `tally` then holds what was tried.
    """
    findings, stop = list[Finding](), threading.Event()

    def play_kind(kind: str) -> None:
        if stop.is_set():
            return
        place = Place(kind, script, folder / kind.replace(" ", "-"), deadline_s=deadline_s)
        try:
            for seed in seeds[kind]:
                if stop.is_set():
                    return
                for finding in place.play(seed, tally):
                    print(finding, flush=True)
                    findings.append(finding)
        finally:
            place.close()

    with ThreadPoolExecutor(jobs) as threads:
        try:
            for done in as_completed([threads.submit(play_kind, kind) for kind in seeds]):
                done.result()
        finally:
            stop.set()
    return findings


def main() -> None:
    """Run a campaign, print its figures (after Ctrl-C, too); exit with 1 if a rule was broken."""
    given = _arguments()
    # A shell has what it starts in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    kinds = given.kind or list(specimens.KINDS)
    seeds = {
        kind: range(given.seed + at, given.seed + given.mutations, len(kinds))
        for at, kind in enumerate(kinds)
    }
    tally = Tally()
    try:
        with tempfile.TemporaryDirectory(
            prefix="holdfast-mutations-", ignore_cleanup_errors=True
        ) as folder:
            play(
                given.script.resolve(),
                Path(folder),
                seeds,
                tally,
                jobs=given.jobs,
                deadline_s=given.deadline_s,
            )
    finally:
        print(*tally.lines(), sep="\n")
        if given.json:
            given.json.write_text(json.dumps(tally.figures(), indent=1))
    sys.exit(1 if tally.broken else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--mutations", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--kind", action="append", choices=sorted(specimens.KINDS))
    parser.add_argument("--jobs", type=int, default=1, help="kinds of experiments at once")
    parser.add_argument("--deadline-s", type=float, default=60, help="of each reading")
    parser.add_argument("--script", type=Path, required=True, help="makes the experiments")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""The results as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.quality.contests import CONTESTS
from benchmarks.quality.results import Result
from benchmarks.quality.running import NAMES
from benchmarks.quality.statistics import MARGIN
from benchmarks.quality.verdicts import AgainstPeer, AgainstRandom, against_peers, against_random

_PAPERS = {contest.name: contest.paper for contest in CONTESTS}


def told(results: Sequence[Result]) -> str:
    """Both tables: compared with the peers, and with random search."""
    return f"{peers_table(against_peers(results))}\n\n{random_table(against_random(results))}"


def put_into(page: Path, results: Sequence[Result]) -> None:
    """Replace the text between the two marks of each table."""
    replace_part(page, "peers", peers_table(against_peers(results)))
    replace_part(page, "random", random_table(against_random(results)))


def replace_part(page: Path, name: str, table: str) -> None:
    """Replace the text between the two marks of this name."""
    begin, end = f"<!-- {name}: made by scripts/quality -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{table}\n{end}{after}")


def fill_cells(page: Path, results: Sequence[Result]) -> None:
    """Fill the last cell of each algorithm's row with its result against random search."""
    found = against_random(results)
    cells = {
        name: _cell([one for one in found if one.contest == contest.name])
        for contest in CONTESTS
        for name in contest.shown_at
    }
    lines = [_filled(line, cells) for line in page.read_text().splitlines(keepends=True)]
    page.write_text("".join(lines))


def _filled(line: str, cells: Mapping[str, str]) -> str:
    for name, cell in cells.items():
        if line.startswith(f"| `{name}`"):
            return f"{line.rsplit('|', 2)[0]}| {cell} |\n"
    return line


def _cell(found: Sequence[AgainstRandom]) -> str:
    if not found:
        return "not measured"
    better = sum(one.verdict == "better" for one in found)
    return (
        f"{mean(one.score for one in found):.2f}; better than random search on {better} of "
        f"{len(found)} tasks, {found[0].seeds} seeds"
    )


def peers_table(found: Sequence[AgainstPeer]) -> str:
    head = ("algorithm", "compared with", "tasks, seeds", "ours", "the peer's",
            f"p (not {MARGIN:g} worse)", "verdict", "random search would pass")  # fmt: skip
    return markdown(head, [_peer_row(one) for one in found])


def _peer_row(one: AgainstPeer) -> Sequence[str]:
    return (
        one.contest,
        f"{NAMES[one.peer]} {one.version}, {one.algorithm}",
        f"{len(one.tasks)}, {one.seeds}",
        f"{one.ours:.2f}",
        f"{one.theirs:.2f}",
        "" if one.is_kin else _p(one.p),
        one.verdict,
        "yes" if one.random_passes else "no",
    )


def random_table(found: Sequence[AgainstRandom]) -> str:
    head = ("algorithm", "paper", "task", "seeds", "score", "regret at the end", "random search's",
            "p (better score)", "than random search")  # fmt: skip
    return markdown(head, [_random_row(one) for one in found])


def _random_row(one: AgainstRandom) -> Sequence[str]:
    return (
        one.contest,
        _PAPERS[one.contest],
        one.task,
        f"{one.seeds}",
        f"{one.score:.2f}",
        f"{one.final:.3f}",
        f"{one.final_at_random:.3f}",
        _p(one.p),
        one.verdict,
    )


def _p(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.2g}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of these cells."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

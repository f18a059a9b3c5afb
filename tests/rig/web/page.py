"""The page's server for tests in a browser, and what its runs do."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from holdfast.dataclass import dataclass
from tests.rig.bench import Bench
from tests.rig.script import UserScript

CLI = "from holdfast.cli import main\nimport sys\nsys.exit(main())\n"
PAGE_RUN = Path(__file__).with_name("page_run.py")


@dataclass(frozen=True, slots=True)
class Served:
    """`holdfast web`, which listens at `url` (with the token). `root`: the experiment."""

    script: UserScript
    url: str
    root: Path

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def token(self) -> str:
        return urlsplit(self.url).query.removeprefix("token=")

    @property
    def frame_url(self) -> str:
        path = urlsplit(self.url).path
        return f"{self.origin}{path}frame/{self.token}/"

    def at(self, route: str) -> str:
        """The URL of a view, for a browser that has the cookie."""
        return f"{self.origin}{urlsplit(self.url).path}#/{route}"


def serve(bench: Bench, *words: str | Path, port: int = 0) -> Served:
    """Start `holdfast web WORDS` and wait until it has printed its URL."""
    path = bench.write(CLI, "cli.py")
    script = bench.run(path, "web", *map(str, words), "--port", str(port))
    url = script.said("http://", stream="stdout").strip()
    return Served(script, url, bench.root)


def begun(bench: Bench, index: int, **options: Any) -> UserScript:
    """Start the run, and hold it once this trial has begun: no trial begins an epoch until the
    gate `hold` is opened."""
    script = bench.start(**options)
    script.wait_for(f"begun {index} ")
    return script


def view(**query: str) -> str:
    """The query of a hash."""
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())


def killed_and_ended(bench: Bench, **options: Any) -> None:
    """A run that was killed when trial 7 had failed twice, restored, and has ended."""
    bench.gate("begun-7-3")
    script = bench.start(**options)
    script.wait_for("begun 7 3")
    script.dies()
    bench.start(restore=True, **options).succeeds()

"""Draw docs/pictures/live.svg: the live table of a real run, as a terminal showed it.

Runs examples/digits.py in a pseudo-terminal, keeps the picture of the moment when the given share
of the trials had ended, and writes it as an SVG that loads nothing: `scripts/picture`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[2]
COLUMNS, ROWS = 104, 26
# rich's sequences that move and erase; colours stay in the lines, where rich reads them again.
CONTROL = re.compile(r"\x1b\[(\?25[hl]|\d*[AGHJK])|\r|\n")
SHARE = re.compile(r" (\d+)%")
THEME = TerminalTheme(
    (18, 20, 24),
    (214, 218, 224),
    [
        (60, 64, 72), (229, 107, 111), (126, 193, 112), (224, 178, 92),
        (104, 160, 220), (190, 132, 212), (92, 182, 190), (214, 218, 224),
    ],
)  # fmt: skip
# rich's own page draws a window and links fonts; this one does neither.
PAGE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>The live table of a run</title>
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
<rect width="{width}" height="{height}" rx="8" fill="#121418"/>
<g transform="translate(16, 12)" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


class Screen:
    """The lines of a terminal that gets complete lines, as from rich's live display."""

    def __init__(self) -> None:
        self.lines = [""]
        self._at = 0

    def write(self, text: str) -> None:
        end = 0
        for control in CONTROL.finditer(text):
            self.lines[self._at] += text[end : control.start()]
            self._obey(control.group())
            end = control.end()
        self.lines[self._at] += text[end:]

    def _obey(self, control: str) -> None:
        if control == "\n":
            self._at += 1
            self.lines += [""] * (self._at + 1 - len(self.lines))
        elif control.endswith("A"):
            self._at -= int(control[2:-1] or 1)
        elif control.endswith("K"):
            self.lines[self._at] = ""

    @property
    def share(self) -> int:
        """The percentage of the progress bar, 0 without one."""
        found = [SHARE.search(Text.from_ansi(line).plain) for line in self.lines if "━" in line]
        return int(found[-1].group(1)) if found and found[-1] else 0


def output_of(command: list[str]) -> Iterator[str]:
    """The output of a command in its own terminal, as it comes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    hidden = ("NO_COLOR", "CI", "COLUMNS", "LINES")
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PYTHONUTF8": "1"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=ROOT
    )
    os.close(theirs)
    rest = b""
    try:
        while True:
            try:
                rest += os.read(ours, 65_536)
            except OSError:  # Linux raises this when the other side is closed
                return
            # A frame is written as a whole and ends a line: the rest waits for the next read.
            whole, newline, rest = rest.rpartition(b"\n")
            yield (whole + newline).decode()
    finally:
        os.close(ours)
        process.terminate()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", type=int, default=55, help="percent of the run that is done")
    parser.add_argument("-o", "--output", default=str(Path(__file__).with_name("live.svg")))
    arguments = parser.parse_args()
    screen = Screen()
    with tempfile.TemporaryDirectory() as folder:
        run = ["examples/digits.py", "--storage", folder, "--name", "digits"]
        for text in output_of([sys.executable, *run]):
            screen.write(text)
            if screen.share >= arguments.at:
                break
        else:
            sys.exit("the run ended before a picture of it could be taken")
    lines = [Text.from_ansi(line) for line in screen.lines]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    bar = max(at for at, line in enumerate(lines) if "━" in line.plain)
    lines = [Text("$ scripts/demo --name digits", style="bold"), *lines[bar - 1 :]]
    drawn = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    for line in lines:
        drawn.print(line)
    print(drawn.export_text(clear=False))
    size = {"width": round(COLUMNS * 12.2 + 32), "height": round(len(lines) * 24.4 + 32)}
    page = PAGE.replace("{width}", str(size["width"])).replace("{height}", str(size["height"]))
    svg = drawn.export_svg(theme=THEME, code_format=page, unique_id="live")
    Path(arguments.output).write_text(svg)


if __name__ == "__main__":
    main()

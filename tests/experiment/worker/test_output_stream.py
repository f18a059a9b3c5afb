"""A trial's output reaches its file as it is printed; the terminal gets whole lines."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.experiment.worker import output as output_stream
from holdfast.experiment.worker.output import LineEcho, OutputStream


class Shown:
    """A controller that records its messages."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_busy = False

    @property
    def lines(self) -> list[str]:
        return [line for text in self.texts for line in text.split("\n")]


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "stdout", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield fd
    os.close(fd)


def echo_to(shown: Shown) -> LineEcho:
    return LineEcho(shown.texts.append, lambda: shown.is_busy, "stdout")


@pytest.fixture
def stream(file: int, shown: Shown) -> Iterator[OutputStream]:
    made = OutputStream(file, "<stdout>", echo_to(shown))
    made.open_text("utf-8", "strict")
    yield made
    made.finish()


def content(fd: int) -> str:
    return os.pread(fd, 1 << 24, 0).decode()


def test_each_piece_is_in_the_file_when_print_returns(stream: OutputStream, file: int) -> None:
    print("one", file=stream.text)
    print("two", 2, end="", file=stream.text)
    assert content(file) == "one\ntwo 2"
    stream.write(memoryview(b" bytes"))
    assert content(file) == "one\ntwo 2 bytes"


def test_lines_are_shown_whole_and_the_last_one_at_the_end(
    stream: OutputStream, shown: Shown
) -> None:
    print("one", file=stream.text)
    print("caf\u00e9", end="", file=stream.text)
    assert shown.lines == ["one"]
    stream.finish()
    assert shown.lines == ["one", "caf\u00e9"]


def test_what_a_carriage_return_takes_back_is_in_the_file_and_not_shown(
    stream: OutputStream, shown: Shown, file: int
) -> None:
    for percent in (10, 20):
        stream.text.write(f"\r {percent}%")
    stream.text.write("\r 30%\r\n")
    assert content(file) == "\r 10%\r 20%\r 30%\r\n"
    assert shown.lines == [" 30%"]


def test_a_storm_takes_one_write_for_each_line_and_few_messages(
    stream: OutputStream, shown: Shown, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    write = os.write

    def counting(fd: int, data: bytes) -> int:
        writes.append(fd)
        return write(fd, data)

    monkeypatch.setattr(os, "write", counting)
    # However busy the machine is, these are within one window.
    monkeypatch.setattr(output_stream, "_WINDOW_S", 3600.0)
    count = 5_000
    for number in range(count):
        print("line", number, file=stream.text)
    assert content(file) == "".join(f"line {number}\n" for number in range(count))
    assert len(writes) < count + 500
    stream.finish()
    assert len(shown.texts) < 100
    assert shown.lines[-1] == f"line {count - 1}"
    (note,) = (line for line in shown.lines if "not shown" in line)
    skipped = int(note.split()[1].replace(",", ""))
    assert note == f"... {skipped:,} lines not shown here, see stdout"
    assert len(shown.lines) - 1 + skipped == count


def test_in_a_storm_the_beginning_of_a_line_does_not_wait_for_its_end() -> None:
    ours, theirs = os.pipe()
    stream = OutputStream(theirs, "<stdout>")
    text = stream.open_text("utf-8", "strict")
    text.write("x\n" * output_stream._MANY)
    for _ in range(output_stream._MANY):
        text.write("x\n")
    text.write("the beginning")
    with os.fdopen(ours, "rb", buffering=0) as reader:
        received = b""
        while not received.endswith(b"beginning"):
            received += reader.read(4096)
    stream.finish()
    os.close(theirs)


def test_a_forked_child_writes_once_and_shows_nothing(
    stream: OutputStream, shown: Shown, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_stream, "_WINDOW_S", 3600.0)
    for _ in range(output_stream._MANY):
        print("before", file=stream.text)
    stream.text.write("begun, ")  # a storm holds it
    before = content(file)
    stream.before_fork()
    assert content(file) == before + "begun, "
    pid = os.fork()
    if pid == 0:
        stream.in_child()
        print("in the child", file=stream.text, end="")
        os._exit(0)
    os.waitpid(pid, 0)
    print("; in the parent", file=stream.text)
    stream.finish()
    assert content(file) == before + "begun, in the child; in the parent\n"
    assert shown.lines[-1] == "begun, ; in the parent"


def test_what_a_signal_handler_prints_within_a_message_is_shown_after_it(
    stream: OutputStream, shown: Shown, file: int
) -> None:
    shown.is_busy = True
    print("in a handler", file=stream.text)
    assert content(file) == "in a handler\n"
    assert shown.texts == []
    shown.is_busy = False
    print("later", file=stream.text)
    assert shown.lines == ["in a handler", "later"]


def test_two_threads_that_print_lose_no_line(stream: OutputStream, file: int) -> None:
    def speak(name: str) -> None:
        for number in range(2_000):
            stream.text.write(f"{name} {number}\n")

    threads = [threading.Thread(target=speak, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.finish()
    lines = content(file).splitlines()
    for name in "ab":
        assert [line for line in lines if line[0] == name] == [f"{name} {n}" for n in range(2_000)]


def test_a_stream_that_user_code_has_taken_apart_does_no_harm(
    stream: OutputStream, file: int
) -> None:
    binary = stream.text.detach()
    for _ in range(3 * output_stream._MANY):
        binary.write(b"x\n")
    stream.before_fork()
    stream.finish()
    assert content(file) == "x\n" * 3 * output_stream._MANY


def test_long_output_is_shown_in_bounded_messages(stream: OutputStream, shown: Shown) -> None:
    print("x" * 1_000_000, file=stream.text)
    print("line of many\n" * 100_000, end="", file=stream.text)
    assert [len(text) < 200_000 for text in shown.texts] == [True, True]
    assert len(shown.texts[0]) == 10_000
    assert shown.lines[1].startswith("... ")

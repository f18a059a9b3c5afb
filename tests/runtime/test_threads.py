"""Thread limits for libraries, and which threads forbid a fork."""

import ctypes
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.runtime.interpreter import (
    LIMITS,
    limit_imports,
    release_limits,
    reseed_libraries,
    unsafe_to_fork,
)

# Each is the only one that a library reads: OpenMP, TensorFlow, joblib, polars, Numba, Rayon.
GIVEN = (
    "OMP_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "LOKY_MAX_CPU_COUNT",
    "POLARS_MAX_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def test_libraries_are_imported_with_one_thread() -> None:
    environ = {"OMP_NUM_THREADS": "8", "PATH": "/bin"}
    limit_imports(environ)
    assert {environ[name] for name in LIMITS} == {"1"}
    assert environ["PATH"] == "/bin"


def test_a_worker_gets_as_many_threads_as_it_has_cpus() -> None:
    environ: dict[str, str] = {}
    limit_imports(environ)
    assert release_limits(environ, 4.0) == 4
    assert environ == dict.fromkeys(GIVEN, "4")


def test_what_the_user_set_wins() -> None:
    environ = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "2"}
    limit_imports(environ)
    assert release_limits(environ, 8) == 3
    assert environ["OMP_NUM_THREADS"] == "3"
    assert environ["MKL_NUM_THREADS"] == "2"
    assert "OPENBLAS_NUM_THREADS" not in environ


@pytest.mark.parametrize(("value", "threads"), [("4,2", 4), ("0", 2), ("many", 2), ("", 2)])
def test_nested_or_nonsensical_limits_are_left_to_the_libraries(value: str, threads: int) -> None:
    environ = {"OMP_NUM_THREADS": value}
    limit_imports(environ)
    assert release_limits(environ, 2) == threads
    assert environ["OMP_NUM_THREADS"] == value


@pytest.mark.parametrize(
    ("built_for", "seeded"),
    [
        ({"accelerator": SimpleNamespace(current_accelerator=lambda: None)}, "the CPU"),
        ({"accelerator": SimpleNamespace(current_accelerator=lambda: "cuda")}, "all devices"),
        ({}, "all devices"),
    ],
    ids=["for CPUs", "for GPUs", "before torch 2.6"],
)
def test_a_worker_seeds_torch_on_each_device_that_it_may_have(
    built_for: dict[str, object], seeded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    torch = SimpleNamespace(
        seed=lambda: calls.append("all devices"),
        default_generator=SimpleNamespace(seed=lambda: calls.append("the CPU")),
        **built_for,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    reseed_libraries()
    assert calls == [seeded]


class Named(threading.Thread):
    """A thread with a name that the kernel knows, alive until told to end."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._kernel_name = name
        self._is_up = threading.Event()
        self._may_end = threading.Event()

    def run(self) -> None:
        _take_name(self._kernel_name)
        self._is_up.set()
        self._may_end.wait()

    def __enter__(self) -> None:
        self.start()
        self._is_up.wait()

    def __exit__(self, *_: object) -> None:
        self._may_end.set()
        self.join()


def _take_name(name: str) -> None:
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)


def test_a_thread_that_runs_forbids_a_fork() -> None:
    with Named("openblas (7) x"):
        assert "openblas (7) x" in unsafe_to_fork()


def test_a_thread_that_is_known_to_be_harmless_does_not() -> None:
    with Named("jemalloc_bg_thd"):
        assert "jemalloc_bg_thd" not in unsafe_to_fork()


def test_a_thread_that_was_joined_does_not_though_the_kernel_still_lists_it() -> None:
    """Joined as libraries do it: Python's own `join` returns before the native thread ends."""
    libc = ctypes.CDLL(None)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    body = kind(lambda _: _take_name("short-lived"))
    for _ in range(300):
        thread = ctypes.c_ulong()
        assert libc.pthread_create(ctypes.byref(thread), None, body, None) == 0
        assert libc.pthread_join(thread, None) == 0
        assert "short-lived" not in unsafe_to_fork()

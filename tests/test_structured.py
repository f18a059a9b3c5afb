"""Structured concurrency, read from the code: each task has a group, each wait a deadline."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = ["experiment", "results", "runtime", "scheduler", "syncer", "trial", "src/holdfast"]

# Tasks that no group owns, by file and function.
LOOSE = {
    ("syncer/stores/owned_store.py", "_look_ahead"): (
        "OwnedStore.close cancels it and waits; the store outlives no uploader"
    ),
    (
        "syncer/stores/preflight.py",
        "_write_once",
    ): "four puts that race, under the check's deadline",
}

# Calls in threads that Python waits for at its exit, however long they take.
JOINED = {
    ("runtime/engines/ray_client.py", "_call"): "in a process that ends without it, by os._exit",
    ("syncer/stores/local.py", "_call"): "in the uploader's process, killed if it hangs",
    ("syncer/stores/preflight.py", "_read"): "of a file in the script's own temporary folder",
    (
        "syncer/stores/preflight.py",
        "_write_large",
    ): "of a file in the script's own temporary folder",
    ("syncer/stores/s3/upload.py", "md5_of"): "it hashes one part that is in memory",
    ("syncer/stores/s3/upload.py", "read_source"): "in the uploader's process, killed if it hangs",
}

# Waits without a deadline of their own, by file and function.
ENDLESS = {
    ("experiment/control/run.py", "_work"): "a run lasts as long as its trials",
    ("experiment/control/watch.py", "join"): "of a thread that has set `done` as its last act",
    ("experiment/control/services.py", "finish"): "both steps have one, and an abort cancels them",
    ("experiment/control/watch.py", "watch"): "of a run that has ended",
    ("experiment/trackers/process.py", "main"): "of the thread that ends this process",
    (
        "experiment/worker/rank_session.py",
        "_send",
    ): "of a thread that sends a line before this one",
    ("experiment/worker/command/trainable.py", "_wait"): "a command runs as long as it likes",
    ("experiment/worker/host.py", "_repeating"): "of timers that were cancelled",
    ("experiment/nodes/uploader.py", "gone"): "its caller, an agent that ends, has one",
    ("experiment/records/journal_writer.py", "sync"): "the sync has the disk's deadline",
    ("runtime/process_exits.py", "wait"): "in a daemon thread that Python does not wait for",
    ("runtime/tasks.py", "until"): "what it waits for has one, or ends with the run",
    ("src/holdfast/web/frame.py", "_started"): "of a process that was killed",
    ("src/holdfast/web/frame.py", "live"): "in a daemon thread, as long as the page is served",
    ("src/holdfast/web/server.py", "_end"): "a server lasts until someone ends it",
    ("syncer/stores/owned_store.py", "close"): "of a task that was cancelled",
    ("syncer/stores/s3/upload.py", "lent"): "requests that hold memory have one each",
    ("syncer/stores/s3/http.py", "close"): "of connections that were cut",
    ("syncer/stores/s3/ranges.py", "fetch_others"): "each range has a deadline",
    ("syncer/stores/s3/ranges.py", "_hash_along"): "each range has a deadline",
    ("syncer/uploader/process.py", "_after"): "each order has the storage's deadline",
}

Place = tuple[str, str]


@cache
def modules() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(ROOT).as_posix(), ast.parse(path.read_text()))
        for folder in CODE
        for path in (ROOT / folder).rglob("*.py")
        if not any(parent.is_symlink() for parent in path.parents)
    ]


def called(node: ast.Call) -> tuple[str, str]:
    """The function of a call: `("asyncio", "wait")`, `("self._group", "create_task")`."""
    match node.func:
        case ast.Attribute(value=owner, attr=name):
            return ast.unparse(owner), name
        case ast.Name(id=name):
            return "", name
        case _:
            return "", ""


def groups(tree: ast.Module) -> set[str]:
    """The module's names for its task groups."""
    found = set()
    for node in ast.walk(tree):
        for value, target in (
            [(item.context_expr, item.optional_vars) for item in node.items]
            if isinstance(node, ast.AsyncWith)
            else [(node.value, node.targets[0])]
            if isinstance(node, ast.Assign)
            else []
        ):
            is_made = isinstance(value, ast.Call) and called(value) in {
                ("asyncio", "TaskGroup"),
                ("anyio", "create_task_group"),
            }
            if is_made and target is not None:
                found.add(ast.unparse(target))
    return found


def loose_tasks(path: str, tree: ast.Module) -> set[Place]:
    known = groups(tree)
    found = set()

    def look(node: ast.AST, function: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if isinstance(node, ast.Call):
            owner, name = called(node)
            # Other code cannot cancel what `gather` and `run_in_executor` start.
            is_loose = name in {"ensure_future", "run_in_executor"} or (owner, name) == (
                "asyncio",
                "gather",
            )
            if is_loose or (name == "create_task" and owner not in known):
                found.add((path, function))
        for child in ast.iter_child_nodes(node):
            look(child, function)

    look(tree, "")
    return found


_DEADLINES = {"timeout", "timeout_at", "move_on_after", "fail_after"}


def endless_waits(path: str, tree: ast.Module) -> set[Place]:
    """Calls of `wait` and `join` of tasks, events, threads and processes without a time, outside
    any scope with a deadline."""
    found = set()

    def look(node: ast.AST, function: str, has_deadline: bool) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            function, has_deadline = getattr(node, "name", function), False
        if isinstance(node, (ast.AsyncWith, ast.With)):
            scopes = [item.context_expr for item in node.items]
            has_deadline = has_deadline or any(
                isinstance(scope, ast.Call) and called(scope)[1] in _DEADLINES for scope in scopes
            )
        if isinstance(node, ast.Call) and not has_deadline:
            owner, name = called(node)
            has_time = any(keyword.arg == "timeout" for keyword in node.keywords)
            is_bare = name in {"wait", "join"} and not node.args and not node.keywords
            if ((owner, name) == ("asyncio", "wait") and not has_time) or (is_bare and owner):
                found.add((path, function))
        for child in ast.iter_child_nodes(node):
            look(child, function, has_deadline)

    look(tree, "", False)
    return found


def joined_threads(path: str, tree: ast.Module) -> set[Place]:
    """A call to a dead disk never returns: only daemons may make one."""
    found = set()

    def look(node: ast.AST, function: str) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = node.name
        if isinstance(node, ast.Call):
            owner, name = called(node)
            is_daemon = any(keyword.arg == "daemon" for keyword in node.keywords)
            is_pooled = name == "to_thread" or (owner, name) == ("anyio.to_thread", "run_sync")
            if is_pooled or (name == "Thread" and not is_daemon):
                found.add((path, function))
        for child in ast.iter_child_nodes(node):
            look(child, function)

    look(tree, "")
    return found


def test_no_thread_keeps_a_script_from_ending() -> None:
    found = {place for path, tree in modules() for place in joined_threads(path, tree)}
    assert found == JOINED.keys()


def test_each_task_belongs_to_a_group() -> None:
    found = {place for path, tree in modules() for place in loose_tasks(path, tree)}
    assert found == LOOSE.keys()


def test_each_wait_has_a_deadline() -> None:
    found = {place for path, tree in modules() for place in endless_waits(path, tree)}
    assert found == ENDLESS.keys()

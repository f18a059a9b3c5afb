"""The URI form of a cluster, for `HOLDFAST_CLUSTER` and `holdfast.init(cluster="...")`.

`local://?agents=2`, `ssh://a,me@b?cpus_per_node=4`, `slurm://gpu?nodes=4&time=08:00:00`,
`dask://host:8786`, `ray://host:10001`, and `auto`: the nodes of the Slurm allocation that the
script runs in.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.experiment.nodes.cluster_config import SSH, Cluster, Dask, Local, Ray, Slurm
from holdfast.trial.errors import InvalidConfig, require
from holdfast.trial.metrics import near_text

AUTO = "auto"
_CUSTOM = "resources_per_node."
_NOT_IN_A_QUERY = ("hosts", "scheduler", "resources_per_node")
_CLASSES: Mapping[str, type[Any]] = {
    "local": Local,
    "ssh": SSH,
    "slurm": Slurm,
    "dask": Dask,
    "ray": Ray,
}


def cluster_of_uri(uri: str, environ: Mapping[str, str], *, where: str) -> Cluster:
    """The cluster that a URI describes; `where` names its source in messages. Raises
    InvalidConfig."""
    if uri == AUTO:
        return _allocation(environ, where)
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise InvalidConfig(f"{where}: {uri!r:.200} is not a URI: {error}") from error
    made = _CLASSES.get(parts.scheme)
    known = ", ".join(f"{scheme}://" for scheme in _CLASSES)
    require(
        made is not None and not parts.fragment and parts.path in ("", "/"),
        f'{where}: {uri!r:.200} names no cluster: it begins with {known}, or is "auto"',
    )
    assert made is not None
    given: dict[str, Any] = _first(parts.scheme, unquote(parts.netloc), where)
    custom: dict[str, float] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name.startswith(_CUSTOM):
            custom[name.removeprefix(_CUSTOM)] = _number(text, name, where)
        else:
            given[name] = _setting(made, name, text, where)
    if custom:
        given["resources_per_node"] = custom
    if made is Dask and given.get("insecure"):
        given["scheduler"] = given["scheduler"].replace("tls://", "tcp://", 1)
    try:
        cluster: Cluster = made(**given)
    except InvalidConfig as error:
        raise InvalidConfig(f"{where}: {error}") from error
    return cluster


def _allocation(environ: Mapping[str, str], where: str) -> Cluster:
    require(
        "SLURM_JOB_ID" in environ,
        f'{where}: "auto" uses the nodes of a Slurm allocation, and this script runs in none '
        f"(SLURM_JOB_ID is not set). Run it with sbatch or salloc, or name a cluster",
    )
    return Slurm()


def _first(scheme: str, host: str, where: str) -> dict[str, Any]:
    """The settings that stand in the place of a host."""
    match scheme:
        case "ssh":
            require(bool(host), f"{where}: name the hosts: ssh://node1,node2")
            return {"hosts": host.split(",")}
        case "slurm":
            return {"partition": host} if host else {}
        case "dask":
            require(bool(host), f"{where}: name the scheduler: dask://host:8786")
            return {"scheduler": f"tls://{host}"}
        case "ray":
            return {"address": f"ray://{host}" if host else "auto"}
        case _:
            require(not host, f"{where}: local:// takes no host, but has {host!r:.100}")
            return {}


def _setting(made: type[Any], name: str, text: str, where: str) -> Any:
    fields = [field.name for field in dataclasses.fields(made)]
    known = [field for field in fields if field not in _NOT_IN_A_QUERY]
    near = near_text([name], dict.fromkeys(known))
    require(
        name in known,
        f"{where}: {name!r:.100} is not a setting of {made.__name__}.{near} "
        f"It has: {', '.join(known)}",
    )
    return _READERS.get(name, _text)(text, name, where)


def _number(text: str, name: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidConfig(f"{where}: {name}={text!r:.100} must be a number") from error


def _whole(text: str, name: str, where: str) -> int:
    require(
        text.isascii() and text.isdigit(), f"{where}: {name}={text!r:.100} must be a whole number"
    )
    return int(text)


def _span(text: str, name: str, where: str) -> int | tuple[int, int]:
    """`4`, or `1-4` for (least, most)."""
    least, dash, most = text.partition("-")
    if not dash:
        return _whole(text, name, where)
    return _whole(least, name, where), _whole(most, name, where)


def _words(text: str, name: str, where: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidConfig(f"{where}: {name}={text!r:.100}: {error}") from error


def _yes_or_no(text: str, name: str, where: str) -> bool:
    require(text in ("0", "1"), f"{where}: {name}={text!r:.100} must be 0 or 1")
    return text == "1"


def _text(text: str, name: str, where: str) -> str:
    return text


_READERS: Mapping[str, Callable[[str, str, str], Any]] = {
    "agents": _span,
    "cpus_per_node": _number,
    "gpus_per_node": _whole,
    "idle_s": _number,
    "start_s": _number,
    "nodes": _span,
    "insecure": _yes_or_no,
    "options": _words,
    "python": _words,
    "ssh": _words,
}

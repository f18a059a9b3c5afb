"""`runtime_env`: the environment of the user's code in a worker, for `init` and RunConfig."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from holdfast.dataclass import dataclass
from holdfast.trial.errors import InvalidConfig

_KNOWN: Final = ("env_vars", "working_dir")
# Of a copy of working_dir, and of a server that makes it: there is neither.
_MOOT: Final = ("excludes", "config", "eager_install")
_WHY: Final = {
    "pip": "workers use the packages of the script's own environment: install them there",
    "uv": "workers use the packages of the script's own environment: install them there",
    "conda": "workers use the script's own environment: activate it before the script starts",
    "container": "workers run where the script runs: start the script in the container",
    "image_uri": "workers run where the script runs: start the script in the container",
    "py_modules": "put the modules into working_dir, or install them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEnv:
    """Environment variables and a working directory for every worker; imports search it too.

    The values of the variables are neither shown nor pickled: a pickled RuntimeEnv is empty.
    """

    env_vars: Mapping[str, str] = field(default_factory=dict, repr=False)
    working_dir: str | None = None

    def over(self, other: RuntimeEnv) -> RuntimeEnv:
        """Merge the two; this one overrides `other`."""
        return RuntimeEnv(
            env_vars={**other.env_vars, **self.env_vars},
            working_dir=self.working_dir or other.working_dir,
        )

    def missing(self, names: list[str], environ: Mapping[str, str]) -> list[str]:
        """The `names` that a worker would not find in its environment."""
        return [name for name in names if name not in self.env_vars and name not in environ]

    def __copy__(self) -> RuntimeEnv:
        return self

    def __deepcopy__(self, memo: object) -> RuntimeEnv:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # A trainable that uses its script's RunConfig would carry the values into tuner.pkl.
        return RuntimeEnv, ()


def runtime_env_of(given: Mapping[str, Any] | RuntimeEnv | None, *, where: str) -> RuntimeEnv:
    """Check a user's runtime_env as far as possible without reading the disk.

    Raises InvalidConfig; the message contains no value of a variable.
    """
    if given is None:
        return RuntimeEnv()
    if isinstance(given, RuntimeEnv):
        return given
    if not isinstance(given, Mapping):
        raise InvalidConfig(f"{where} must be a dict, not a {type(given).__name__}")
    for key in given:
        if reason := why_refused(key):
            raise InvalidConfig(f"{where}: {key!r} is not supported: {reason}")
    return RuntimeEnv(
        env_vars=_env_vars(given.get("env_vars"), where),
        working_dir=_working_dir(given.get("working_dir"), where),
    )


def why_refused(key: object) -> str:
    """The reason for which a key of a runtime_env is refused; "" for one that is not."""
    if key in (*_KNOWN, *_MOOT):
        return ""
    return _WHY.get(str(key), f"use {' or '.join(_KNOWN)}")


def _env_vars(variables: Any, where: str) -> dict[str, str]:
    if variables is None:
        return {}
    if not isinstance(variables, Mapping):
        raise InvalidConfig(
            f"{where}: env_vars must be a dict of variables, not a {type(variables).__name__}"
        )
    for name, value in variables.items():
        if not isinstance(name, str) or not isinstance(value, str):
            # The value may be a secret: only its type is named.
            raise InvalidConfig(
                f"{where}: env_vars must map strings to strings; {name!r} is a "
                f"{type(value).__name__}"
            )
        if not name or "=" in name or "\0" in name + value:
            raise InvalidConfig(
                f"{where}: env_vars: {name!r} cannot be an environment variable: names must not "
                "be empty or contain '=', and neither names nor values may contain a NUL "
                "character"
            )
    return dict(variables)


def _working_dir(given: Any, where: str) -> str | None:
    if given is None:
        return None
    path = given.__fspath__() if hasattr(given, "__fspath__") else given
    if not isinstance(path, str) or not path:
        raise InvalidConfig(f"{where}: working_dir must be a directory, not {given!r:.100}")
    if "://" in path or path.lower().endswith((".zip", ".jar", ".whl", ".tar.gz", ".tgz")):
        shown = path.partition("?")[0].rpartition("@")[2]
        raise InvalidConfig(
            f"{where}: working_dir must be a directory on this machine, but {shown!r} is an "
            "archive or a URI: unpack or download it first and pass the directory"
        )
    return path

"""Finds out whether W&B has a key, without importing W&B, which takes seconds."""

from __future__ import annotations

import netrc
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from holdfast.air.integrations.keys import setting_in

OFFLINE: Final = frozenset({"offline", "dryrun", "disabled"})
_SERVICE: Final = "https://api.wandb.ai"


def is_offline(environ: Mapping[str, str], mode: object) -> bool:
    """Whether nothing is sent, according to the callback, the environment or `wandb offline`."""
    said = mode or environ.get("WANDB_MODE") or _setting(environ, "mode")
    return str(said).lower() in OFFLINE


def has_key(environ: Mapping[str, str]) -> bool:
    """Whether there is a key in the environment or where `wandb login` stores one."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    return bool(_setting(environ, "api_key")) or _in_netrc(environ)


def _in_netrc(environ: Mapping[str, str]) -> bool:
    url = environ.get("WANDB_BASE_URL") or _setting(environ, "base_url") or _SERVICE
    home = Path(environ.get("HOME", "~")).expanduser()
    places = [Path(named)] if (named := environ.get("NETRC")) else []
    for path in [*places, home / ".netrc", home / "_netrc"]:
        try:
            if netrc.netrc(path).authenticators(urlsplit(url).hostname or ""):
                return True
        except (OSError, netrc.NetrcParseError):
            continue
    return False


def _setting(environ: Mapping[str, str], name: str) -> str:
    """A setting in the files of the command `wandb`: this folder's, then the user's."""
    home = Path(environ.get("HOME", "~")).expanduser()
    user = Path(environ.get("WANDB_CONFIG_DIR") or home / ".config" / "wandb")
    return setting_in([user / "settings", Path("wandb") / "settings"], "default", name)

"""What `resume=` of `tune.run` says, in all spellings that Ray has had."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from holdfast.trial.errors import InvalidConfig
from holdfast.trial.tuning import ResumeConfig

# As `fit(resume=...)` says it. LOCAL and REMOTE have named a place, and an experiment there.
_HOW: Final = {
    "AUTO": "auto",
    "LOCAL": "must",
    "REMOTE": "must",
    "MUST": "must",
    "NEVER": "never",
}
_ERRORED: Final = {
    "ERRORED": ResumeConfig(errored="resume"),
    "RESTART_ERRORED": ResumeConfig(errored="restart"),
    "ERRORED_ONLY": ResumeConfig(errored="resume", unfinished="skip"),
    "RESTART_ERRORED_ONLY": ResumeConfig(errored="restart", unfinished="skip"),
}


class Resuming(NamedTuple):
    """`how` is "never", "auto" or "must"; `config` says which trials resume, None by default."""

    how: str
    config: ResumeConfig | None = None


def resuming(resume: Any, config: ResumeConfig | None = None) -> Resuming:
    """What `tune.run(resume=resume, resume_config=config)` means.

    A `config` alone resumes, as in Ray. Raises InvalidConfig.
    """
    if config is not None and not isinstance(config, ResumeConfig):
        raise InvalidConfig(f"resume_config must be a ResumeConfig, not {config!r:.100}")
    if resume is None or resume is False:
        return Resuming("never") if config is None else Resuming("auto", config)
    if resume is True:
        return Resuming("auto", config)
    how, which = _parts(resume)
    if which is not None and config is not None:
        raise InvalidConfig(
            f"resume={resume!r} and resume_config both say which trials resume: pass one of them"
        )
    return Resuming(how, which or config)


def _parts(resume: object) -> tuple[str, ResumeConfig | None]:
    words = resume.upper().split("+") if isinstance(resume, str) else [""]
    if words[0] in _ERRORED:
        words.insert(0, "MUST")
    if words[0] == "PROMPT":
        raise InvalidConfig(
            f"resume={resume!r}: holdfast asks nothing. Write resume='AUTO', which resumes the "
            f"experiment if there is one"
        )
    if words[0] not in _HOW or any(word not in _ERRORED for word in words[1:]) or len(words) > 2:
        raise InvalidConfig(
            f"resume must be True, False or one of {', '.join(_HOW)}, alone or followed by "
            f"+{', +'.join(_ERRORED)}; not {resume!r:.100}"
        )
    return _HOW[words[0]], _ERRORED[words[1]] if len(words) > 1 else None

"""What several commands say of themselves in their help."""

from __future__ import annotations

EXPERIMENT = (
    "the experiment's directory <storage_path>/<name>, or its URI such as "
    "s3://bucket/results/digits?endpoint_override=http://127.0.0.1:9000; credentials as for fit()"
)
TRIAL = "a trial's id, the beginning or end of one, or its number: 0, 1, ..."
CODES = "exit codes: 0 sound, or done; 1 something is wrong; 2 not understood, or not found"

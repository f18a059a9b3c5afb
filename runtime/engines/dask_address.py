"""Whether an agent's invitation may travel to a Dask scheduler at this address."""

from __future__ import annotations

_ENCRYPTED = ("tls", "wss")


def refusal(address: str, *, insecure: bool) -> str:
    """Why this cluster is refused, and what to do; "" if it is not. The path of a scheduler file
    is not: its address is checked when it is known."""
    scheme, separator, _ = address.partition("://")
    if not separator:
        if address.endswith(".json"):
            return ""
        scheme = "tcp"
    if scheme == "inproc":
        return (
            f"Dask at {address} lives inside one process, so it has no other machine. Use "
            f"holdfast.cluster.Local() instead, or LocalCluster(processes=True)"
        )
    if scheme in _ENCRYPTED or insecure:
        return ""
    return (
        f"Dask at {address} has no TLS, so everyone on its network could read the invitations of "
        f"agents and take part in the run. Start the scheduler and the workers with "
        f"`--protocol tls` and certificates (https://distributed.dask.org/en/stable/tls.html), or "
        f"allow it with insecure=True (insecure=1 in a URI)"
    )


def remedy(address: str) -> str:
    """What to do about a connection that fails with TLS; "" if it has none."""
    if address.partition("://")[0] not in _ENCRYPTED:
        return ""
    return (
        ". A scheduler with TLS needs the cluster's certificates here: pass a connected Client, "
        "or set distributed.comm.tls in Dask's configuration. One without TLS needs insecure=True "
        "(insecure=1 in a URI)"
    )

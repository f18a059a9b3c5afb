"""The peers' algorithms in the same virtual time, each run by a Python that has the peer.

Nothing here needs holdfast, and each module but `clock` needs its peer.
"""

"""The fleet: one agent on each node of a cluster, which runs workers for the controller.

Start reading at `fleet.py`, the launcher over agents, and `agent.py`, the agent itself. An engine
(`holdfast.runtime.engines`) starts the agents. `handshake.py` checks who an agent is before it is
a node, and `messages.py` what it sends then.
"""

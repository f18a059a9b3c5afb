"""The fleet: one agent on each node of a cluster, which runs workers for the controller.

Start reading at `fleet.py`, the launcher over agents; `node.py` is the controller's handle of one
agent, and `agent.py` the agent itself. An engine (`holdfast.runtime.engines`) starts the agents.
Before an agent is a node, `door.py` and `greeting.py` check who it is. `liveness.py` decides when
a silent node is lost (pure).
"""

"""A Ray cluster in a process of its own. It reads orders, a line each, and answers with a line:
`add RESOURCES`, `kill NODE`, `drain NODE`, `kill-gcs`. It ends the cluster with its stdin."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from ray._private import ray_constants
from ray.cluster_utils import Cluster

SMALL = {"object_store_memory": 80_000_000, "node_ip_address": "127.0.0.2"}


def drain(cluster: Any, node: str) -> None:
    from ray._raylet import GcsClient
    from ray.core.generated import autoscaler_pb2

    reason = autoscaler_pb2.DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
    deadline_ms = int((time.time() + 300) * 1000)
    GcsClient(cluster.address).drain_node(node, reason, "the test takes it", deadline_ms)


def main() -> None:
    client = {"ray_client_server_port": int(sys.argv[1])} if sys.argv[1:] else {}
    head = {"num_cpus": 1, "include_dashboard": False, **SMALL, **client}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = {cluster.head_node.node_id: cluster.head_node}
    print(cluster.address, cluster.head_node.node_id, flush=True)
    for line in sys.stdin:
        order, argument = line.split(maxsplit=1)
        answer = "done"
        if order == "add":
            node = cluster.add_node(num_cpus=1, resources=json.loads(argument), **SMALL)
            nodes[node.node_id] = node
            answer = node.node_id
        elif order == "kill":
            cluster.remove_node(nodes.pop(argument.strip()), allow_graceful=False)
        elif order == "drain":
            drain(cluster, argument.strip())
        elif order == "kill-gcs":
            kind = ray_constants.PROCESS_TYPE_GCS_SERVER
            cluster.head_node.all_processes[kind][0].process.kill()
        print(answer, flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()

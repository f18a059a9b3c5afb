"""Barriers of torch's own, for torchrun: `bare_barrier.py COUNT`; rank 0 prints seconds of one."""

import json
import sys
import time

import torch.distributed as dist

count = int(sys.argv[1])
dist.init_process_group("gloo")
for _ in range(20):
    dist.barrier()
began_s = time.monotonic()
for _ in range(count):
    dist.barrier()
if dist.get_rank() == 0:
    print(json.dumps((time.monotonic() - began_s) / count))
dist.destroy_process_group()

"""A program of a sweep: three reports, and an error for one of the configurations."""

import sys

values = dict(one.removeprefix("--").split("=") for one in sys.argv[1:])
for epoch in range(1, 4):
    if values["kind"] == "b" and values["lr"] == "0.2" and epoch == 3:
        sys.exit("no luck")
    print(f"holdfast: loss={float(values['lr']) / epoch} epoch={epoch}", flush=True)

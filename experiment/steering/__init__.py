"""Orders of a person to a live run: over a socket in its folder, from the command and the page.

Start reading at `orders.py` (what can be ordered), then `desk.py` (performs an order) and
`socket.py` (the run's end, and the address). `holdfast.results.steering_client` is the other end.
"""

"""Orders of a person to a live run: over a socket in its folder, from the command and the page.

Start reading at `orders.py` (what can be ordered), then `socket.py` (the end of the run, and its
address). `control/person_orders.py` performs an order, `holdfast.results.steering_client` is the
other end.
"""

"""Orders of a person to a live run: over a socket in its folder, from the command and the page.

Start reading at `orders.py` (what can be ordered), then `socket.py` (the end of the run, and its
address). `holdfast.experiment.control.person_orders` performs an order, and
`holdfast.results.steering_client` is the other end.
"""

"""Orders of a person to a live run: over a socket in its folder, from the command and the page.

Start reading at `orders.py` (what can be ordered), then `desk.py` (performs an order), `socket.py`
(the run's end, and the address) and `client.py` (the other end).
"""

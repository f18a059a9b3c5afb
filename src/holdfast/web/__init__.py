"""The live page: HTTP over what `holdfast.results.page` reads. The extra is holdfast[web].

`security.py` decides which requests are answered, `app.py` has the routes and the server-sent
events, `server.py` the process's sockets and its end. `child.py` and `frame.py`
start it for a run and in a notebook, `holdfast.cli.serving` from a shell.
"""

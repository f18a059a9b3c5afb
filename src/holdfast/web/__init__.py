"""The live page: HTTP over what `holdfast.results.page` reads. The extra is holdfast[web].

`security.py` decides which requests are answered, `app.py` has the routes and the server-sent
events, `server.py` the process's sockets and its end. `command.py`, `child.py` and
`frame.py` start it: from a shell, for a run, and in a notebook.
"""

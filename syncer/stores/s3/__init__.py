"""A store in an S3 bucket, over a client of holdfast's own.

Start reading at `store.py`. `client.py` has the requests, `http.py` sends and signs them,
`answers.py` reads what comes back, and `access.py` finds the address and the keys. `upload.py` and
`ranges.py` move the bytes of objects.
"""

"""A store in an S3 bucket, over aiobotocore.

Start reading at `store.py`. `direct.py` and `http.py` are a faster way for plain
requests; all others go through botocore.
"""

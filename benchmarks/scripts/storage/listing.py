"""Lists a folder of a bucket: `listing.py ENDPOINT ACCESS_KEY SECRET_KEY BUCKET PREFIX`."""

import asyncio
import sys

from aiobotocore.session import get_session

endpoint, access_key, secret_key, bucket, prefix = sys.argv[1:]


async def main() -> None:
    client = get_session().create_client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
    )
    async with client as s3:
        page = await s3.list_objects_v2(Bucket=bucket, Prefix=prefix)
        print(len(page["Contents"]))


asyncio.run(main())

"""Which checksum a body is sent with, and what the server's answer proves about it.

A server that knows CRC-32C checks it and returns it, here at 20 GiB/s. MD5 takes 30 times as long,
but other servers know nothing else: they check the Content-MD5 and return it as the ETag (unless
the object is encrypted). The first body is sent with both; later ones with the CRC-32C if the
server has returned it, and with the MD5 if it has ignored or refused it. A part of an upload is
sent without MD5 once ETags are MD5 sums: the server need not compute it twice, and the ETag of a
sum that it was never told proves more than its silence.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from holdfast.dataclass import dataclass
from holdfast.syncer.errors import StorageUnavailable
from holdfast.syncer.stores.s3.body import Body, md5_of
from holdfast.syncer.stores.s3.errors import refuses_checksum

CRC = "ChecksumCRC32C"
ALGORITHM = "CRC32C"
# An upload is completed, and the sum of the whole object known, without those of its parts.
SUMMED = {"ChecksumAlgorithm": ALGORITHM, "ChecksumType": "FULL_OBJECT"}

Fields = Mapping[str, Any]
R = TypeVar("R")


@dataclass(slots=True)
class Checksums:
    """What the answers of a bucket's server have shown.

    `knows_crc`: it has returned the CRC-32C; None until it was asked. `etags_are_md5`: the last
    ETag that was compared is an MD5 sum; those of encrypted objects are not.
    """

    knows_crc: bool | None = None
    etags_are_md5: bool = False

    async def trying(self, send: Callable[[bool], Awaitable[R]]) -> R:
        """Call `send(with_crc)`; again without the CRC-32C if the server refuses it.

        Raises what `send` raises.
        """
        if self.knows_crc is False:
            return await send(False)
        try:
            return await send(True)
        except Exception as error:
            if not refuses_checksum(error):
                raise
        answer = await send(False)
        self.knows_crc = False
        return answer

    async def put(
        self, send: Callable[..., Awaitable[Fields]], body: Body, key: str
    ) -> tuple[Fields, bool]:
        """Call `send` with the body and its checksum. Returns the answer, and whether it proves
        that the body has arrived. Raises what `send` raises, and StorageUnavailable."""

        async def sending(with_crc: bool) -> Fields:
            return await send(Body=body.data, **await self._sums(body, with_crc))

        answer = await self.trying(sending)
        return answer, await self.proves(answer, body, key)

    async def put_part(
        self, send: Callable[..., Awaitable[Fields]], body: Body, key: str, *, is_summed: bool
    ) -> tuple[str, bool]:
        """Like `put`, for a part of an upload whose parts must have their CRC-32C or have none.
        Returns the ETag, and whether the answer proves that the part has arrived."""
        is_bare = self.etags_are_md5 and not is_summed
        sums = {} if is_bare else await self._sums(body, is_summed)
        answer = await send(Body=body.data, **sums)
        is_proven = await self.proves(answer, body, key, is_asked=is_summed)
        if is_bare and not is_proven:  # another part has shown that ETags are no MD5 sums
            raise _other_bytes(key, "MD5")
        return str(answer["ETag"]), is_proven

    async def proves(self, answer: Fields, body: Body, key: str, *, is_asked: bool = True) -> bool:
        """Whether the answer proves that the bytes have arrived. `is_asked`: they were sent with
        their CRC-32C.

        Raises StorageUnavailable if it proves that other bytes have arrived, because some servers
        do not check. If an ETag does so twice in a row, the bucket no longer uses MD5 sums.
        """
        crc, etag = answer.get(CRC), str(answer.get("ETag", "")).strip('"')
        if crc is not None and crc != body.crc:
            raise _other_bytes(key, "CRC-32C")
        if crc is not None:
            self.knows_crc = True
            if body.md5 is not None:
                self.etags_are_md5 = etag == body.md5.hex()
            return True
        if is_asked:
            self.knows_crc = False
        if etag == (await md5_of(body)).hex():
            self.etags_are_md5 = True
            return True
        if self.etags_are_md5:
            self.etags_are_md5 = False
            raise _other_bytes(key, "MD5")
        return False

    async def _sums(self, body: Body, with_crc: bool) -> dict[str, str]:
        """The checksums of a request."""
        found = {CRC: body.crc} if with_crc else {}
        if not (with_crc and self.knows_crc):
            found["ContentMD5"] = base64.b64encode(await md5_of(body)).decode()
        return found

    async def are_there(self, etag: str, crc: str | None, body: Body) -> bool:
        """Whether a part of an interrupted upload, with this ETag and perhaps a CRC-32C, has these
        bytes.

        They may be of another attempt, and two of 4 billion different parts have the same CRC-32C:
        it counts only if the bucket's ETags prove nothing.
        """
        if etag.strip('"') == (await md5_of(body)).hex():
            return True
        return not self.etags_are_md5 and crc == body.crc


def _other_bytes(key: str, by: str) -> StorageUnavailable:
    return StorageUnavailable(
        "put", key, f"the store has bytes that differ from those sent (by their {by})"
    )

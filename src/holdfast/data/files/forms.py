"""The forms of text files: CSV, JSON and plain lines."""

from __future__ import annotations

import copy
import json
from typing import Any

from holdfast.data.files.text_source import Form, Header
from holdfast.dataclass import dataclass

_UNITS_OF_TWO = ("utf-16", "utf16", "utf-32", "utf32", "ucs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv(Form):
    """CSV, parsed by pyarrow with its options; None for its defaults."""

    read_options: Any = None
    parse_options: Any = None
    convert_options: Any = None
    caller = "read_csv"

    def parse(self, data: bytes, header: Header | None, schema: Any) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        return csv.read_csv(
            pa.BufferReader(data),
            read_options=self._read(header, len(data)),
            parse_options=self.parse_options,
            convert_options=self._convert(schema),
        )

    def _read(self, header: Header | None, size: int) -> Any:
        from pyarrow import csv

        given = copy.deepcopy(self.read_options) or csv.ReadOptions()
        # One block: pyarrow takes the types from its first one.
        given.block_size = max(size, 1 << 10)
        if header is not None:
            given.skip_rows = given.skip_rows_after_names = 0
            given.autogenerate_column_names, given.column_names = False, list(header)
        return given

    def _convert(self, schema: Any) -> Any:
        from pyarrow import csv

        given = copy.deepcopy(self.convert_options) or csv.ConvertOptions()
        if schema is not None:
            given.column_types = {field.name: field.type for field in schema}
        return given

    def cut(self, data: bytes) -> int:
        """A line may end within quotes only if the parse options say so."""
        place = data.rfind(b"\n") + 1
        if self.parse_options is None or not self.parse_options.newlines_in_values:
            return place
        quote = self.parse_options.quote_char
        while place and quote and data.count(quote.encode(), 0, place) % 2:
            place = data.rfind(b"\n", 0, place - 1) + 1
        return place

    def is_one_block(self, data: bytes) -> bool:
        encoding = self.read_options.encoding if self.read_options is not None else ""
        return encoding.lower().startswith(_UNITS_OF_TWO)

    def wider(self, column: str, one: Any, other: Any) -> Any:
        """The text, as the file has it."""
        import pyarrow as pa

        return pa.string()


@dataclass(frozen=True, slots=True, kw_only=True)
class Json(Form):
    """JSON: an object for each line, objects one after the other, or one list of objects."""

    read_options: Any = None
    parse_options: Any = None
    caller = "read_json"

    def parse(self, data: bytes, header: Header | None, schema: Any) -> Any:
        import pyarrow as pa
        from pyarrow import json as arrow_json

        if self._is_list(data):
            rows = json.loads(data)
            if not all(isinstance(row, dict) for row in rows):
                raise ValueError("the list has items that are not objects")
            known = schema and [
                field for field in schema if any(field.name in row for row in rows)
            ]
            return pa.Table.from_pylist(rows, schema=pa.schema(known) if known else None)
        options = copy.deepcopy(self.parse_options) or arrow_json.ParseOptions()
        options.newlines_in_values = True
        if schema is not None:
            options.explicit_schema = schema
            options.unexpected_field_behavior = "ignore"
        read = copy.deepcopy(self.read_options) or arrow_json.ReadOptions()
        read.block_size = max(len(data), 1 << 10)
        return arrow_json.read_json(
            pa.BufferReader(data), read_options=read, parse_options=options
        )

    def _is_list(self, data: bytes) -> bool:
        return data.lstrip()[:1] == b"["

    def is_one_block(self, data: bytes) -> bool:
        """Unless the first line is a whole object."""
        first, end, _ = data.lstrip().partition(b"\n")
        if self._is_list(data):
            return True
        try:
            json.loads(first)
        except ValueError:
            return bool(end)
        return False

    def wider(self, column: str, one: Any, other: Any) -> Any:
        """Texts that look like times are texts if others do not."""
        import pyarrow as pa

        if all(pa.types.is_string(kind) or pa.types.is_temporal(kind) for kind in (one, other)):
            return pa.string()
        raise ValueError(f"the column {column!r} has values of the types {one} and {other}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines(Form):
    """Each line is a text in the column "text"."""

    encoding: str
    drop_empty_lines: bool
    caller = "read_text"

    def parse(self, data: bytes, header: Header | None, schema: Any) -> Any:
        import pyarrow as pa

        lines = data.decode(self.encoding).removesuffix("\n").split("\n")
        found = [line.removesuffix("\r") for line in lines]
        if self.drop_empty_lines:
            found = [line for line in found if line.strip()]
        return pa.table({"text": pa.array(found, pa.string())})

    def is_one_block(self, data: bytes) -> bool:
        return self.encoding.lower().startswith(_UNITS_OF_TWO)

    def wider(self, column: str, one: Any, other: Any) -> Any:
        return one

"""The footer of a parquet file, in the compact protocol of Thrift: as much of it as says how many rows and bytes there are."""

from __future__ import annotations

from typing import Any, Final

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_LONG_LIST: Final = 15
_DEEPEST: Final = 32
_ROWS, _GROUPS, _GROUP_BYTES = 3, 4, 2  # numbers of fields: FileMetaData.num_rows, .row_groups, RowGroup.total_byte_size


def rows_and_bytes(data: bytes) -> tuple[int, int]:
    """Rows, and bytes of all columns before compression. Raises ValueError or IndexError where it is no such footer."""
    footer = _Reader(data).fields(0)
    groups = footer.get(_GROUPS, [])
    return int(footer[_ROWS]), sum(int(group[_GROUP_BYTES]) for group in groups)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def fields(self, depth: int) -> dict[int, Any]:
        """A struct, by the numbers of its fields."""
        if depth > _DEEPEST:
            raise ValueError("it is nested too deeply")
        found: dict[int, Any] = {}
        number = 0
        while head := self.byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self.signed()
            found[number] = kind == _TRUE if kind in {_TRUE, _FALSE} else self.value(kind, depth)
        return found

    def value(self, kind: int, depth: int) -> Any:
        if kind in {_TRUE, _FALSE, _BYTE}:
            return self.byte()
        if kind == _DOUBLE:
            return self.take(8)
        if kind == _BINARY:
            return self.take(self.plain())
        if kind in {_LIST, _SET}:
            head = self.byte()
            count = self.plain() if head >> 4 == _LONG_LIST else head >> 4
            return [self.value(head & 15, depth + 1) for _ in range(count)]
        if kind == _MAP:
            count = self.plain()
            kinds = self.byte() if count else 0
            return [(self.value(kinds >> 4, depth + 1), self.value(kinds & 15, depth + 1)) for _ in range(count)]
        if kind == _STRUCT:
            return self.fields(depth + 1)
        return self.signed()

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError("it is cut short")
        self.at += count
        return self.data[self.at - count : self.at]

    def plain(self) -> int:
        """A number without sign, seven bits a byte."""
        found = shift = 0
        while True:
            one = self.byte()
            found |= (one & 127) << shift
            if one < 128:  # noqa: PLR2004 - the last one
                return found
            shift += 7

    def signed(self) -> int:
        """A number whose sign is its last bit."""
        number = self.plain()
        return (number >> 1) ^ -(number & 1)

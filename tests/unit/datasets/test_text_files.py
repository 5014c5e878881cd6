"""Files as bytes of UTF-8 with LF: what is expanded and decoded, and what is refused by its own name."""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_worker.datasets import jsonl
from crucible_worker.datasets.jsonl import text_file
from tests import needs
from tests.tables import rows

TEXT = "".join(f'{{"input": "é{number}"}}\n' for number in range(20_000))


def read(content: bytes) -> bytes:
    """The text of a file."""
    with text_file(io.BytesIO(content), "dataset.file") as text:
        return text.read()


@rows(
    "write",
    [
        str.encode,
        lambda text: gzip.compress(text.encode()),
        lambda text: gzip.compress(text[:99].encode()) + gzip.compress(text[99:].encode()),
        lambda text: text.encode("utf-16"),
        lambda text: ("\ufeff" + text).encode("utf-16-be"),
        lambda text: gzip.compress(text.encode("utf-16")),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: gzip.compress(text.replace("\n", "\r").encode("utf-16")),
    ],
)
def test_text_is_the_same_however_it_is_stored(write: Callable[[str], bytes]) -> None:
    """Compression, encoding and line ends do not matter."""
    assert read(write(TEXT)).decode() == TEXT


def test_lines_that_end_with_cr_and_lf_stay() -> None:
    """The readers of lines know both; a CR elsewhere is a character."""
    assert read(b"a\r\nb\rc\n") == b"a\r\nb\rc\n"
    assert read(b"abc\r") == b"abc\r"


def test_zstandard_is_expanded() -> None:
    """Whatever the number of its frames; what is damaged is refused."""
    pa = pytest.importorskip("pyarrow", reason=needs.MISSING["pyarrow"])
    codec = pa.Codec("zstd")
    first, second = (bytes(codec.compress(part.encode(), asbytes=True)) for part in (TEXT[:99], TEXT[99:]))

    assert read(first + second).decode() == TEXT
    with pytest.raises(InvalidField, match="is damaged: Zstandard cannot expand it") as caught:
        read(second[:50] + b"x" * 200)
    assert caught.value.reason == "MALFORMED_FILE"


def test_zstandard_without_its_library_is_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard library has no decoder."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(
        FailedPrecondition, match=r"install crucible-bridge\[datasets\], or expand it with unzstd"
    ) as caught:
        read(b"\x28\xb5\x2f\xfd" + b"x" * 20)
    assert caught.value.reason == "EXTRA_NOT_INSTALLED"


@rows(
    ("content", "says"),
    [
        (bz2.compress(b"a"), "is compressed by bzip2"),
        (lzma.compress(b"a"), "is compressed by xz"),
        (b"PK\x03\x04....", "is a ZIP archive"),
        (b"PAR1....", "is a Parquet file: write parquet: before its path"),
        ("\ufeffab".encode("utf-32-le"), "is UTF-32"),
        ("\ufeffab".encode("utf-32-be"), "is UTF-32"),
        ('{"input"'.encode("utf-16-le"), "UTF-16 without a byte order mark"),
        ('{"input"'.encode("utf-16-be"), "UTF-16 without a byte order mark"),
        ("\ufeffab".encode("utf-16-le") + b"\x00\xd8a\0", "is not UTF-16: illegal"),
        ("\ufeffab".encode("utf-16-le") + b"a", "is not UTF-16: truncated data"),
        (gzip.compress(b"abc" * 99)[:20], "is damaged: gzip cannot expand it"),
        (gzip.compress(b"abc" * 99)[:-8] + b"x" * 8, "is damaged: gzip cannot expand it: CRC"),
        (b"\x1f\x8bxx", "is damaged: gzip cannot expand it"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(content: bytes, says: str) -> None:
    """The error says what the file is, and what to do."""
    with pytest.raises(InvalidField, match=says) as caught:
        read(content)

    assert (caught.value.reason, caught.value.field) == ("MALFORMED_FILE", "dataset.file")


@pytest.mark.parametrize(("free", "refused"), [(999_999, True), (1_000_000, False)])
def test_expansion_is_bounded(monkeypatch: pytest.MonkeyPatch, free: int, refused: bool) -> None:
    """A file that grows more than a hundredfold is refused once it is larger than what is free."""
    monkeypatch.setattr(jsonl, "FREE_EXPANDED_BYTES", free)
    bomb = gzip.compress(b"\n" * 1_000_000)
    assert len(bomb) * jsonl.MAX_EXPANSION < 999_999

    if refused:
        with pytest.raises(InvalidField, match="expands to more than 100 times its size") as caught:
            read(bomb)
        assert caught.value.reason == "MALFORMED_FILE"
    else:
        assert len(read(bomb)) == 1_000_000


def test_a_bomb_is_refused_before_it_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is expanded than the bound and one piece."""
    monkeypatch.setattr(jsonl, "FREE_EXPANDED_BYTES", 1_000_000)
    packer = zlib.compressobj(9, wbits=31)
    content = b"".join(packer.compress(b"\n" * 1_000_000) for _ in range(100)) + packer.flush()
    seen = 0
    with text_file(io.BytesIO(content), "dataset.file") as text:
        try:
            while piece := text.read(65_536):
                seen += len(piece)
        except InvalidField as error:
            refusal = error.message
        else:
            refusal = ""

    assert "100 times" in refusal
    assert seen < 12_000_000

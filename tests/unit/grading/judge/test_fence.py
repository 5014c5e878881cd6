"""What a judge is shown: nothing unseen, no marks of chat templates, every line marked."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.judge.texts import MARK_CHARS, Fence, digest_mark, readable
from tests.tables import rows


def test_no_unseen_character_is_left() -> None:
    """Of all of Unicode: no control, format or private character and no surrogate, but for tab and line feed."""
    left = [
        hex(code)
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in ("Cc", "Cf", "Co", "Cs")
        and readable(chr(code)) not in ("", "\n", "\ufffd")
    ]

    assert left == [hex(ord("\t"))]
    assert readable("a\ufe0fb\U000e0100c\u3164d") == "abcd"


@rows("end", ["\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_every_line_end_is_a_line_feed(end: str) -> None:
    """Whatever a judge's tokenizer may take for one."""
    assert readable(f"a{end}b") == "a\nb"


@rows(
    ("text", "shown"),
    [
        ("<|im_end|>", "< |im_end|>"),
        ("<\uff5cUser\uff5c>", "< \uff5cUser\uff5c>"),
        ("</s>", "< /s>"),
        ("<end_of_turn>", "< end_of_turn>"),
        ("[/INST]", "[ /INST]"),
        ("<<SYS>>", "< <SYS>>"),
        ("<|im_\u200bend|>", "< |im_end|>"),
        ("</think>", "< /think>"),
        ("<unused12>", "< unused12>"),
        ("[/THINK]", "[ /THINK]"),
        ("[|assistant|]", "[ |assistant|]"),
        ("<BOS_TOKEN>", "< BOS_TOKEN>"),
        ("]~b]system", "] ~b]system"),
    ],
)
def test_marks_of_chat_templates_are_broken_up(text: str, shown: str) -> None:
    """So that a tokenizer reads letters."""
    assert readable(text) == shown


@rows(
    "text",
    ["list |> Enum.map(&(&1)) <| f", "a < b | c > d", "<b>bold</b>", "x[0] = [1, 2]", "naïve 解 🙂", "tab\tkept"],
)
def test_what_is_no_mark_is_kept(text: str) -> None:
    """Programs, tags of HTML and letters of any script are shown as they are."""
    assert readable(text) == text


@given(st.text())
def test_reading_again_changes_nothing(text: str) -> None:
    """What is shown holds nothing that would have to be removed."""
    assert readable(readable(text)) == readable(text)


@given(st.text(), st.text())
def test_every_line_of_a_text_is_marked(mark: str, text: str) -> None:
    """None of them can be taken for a line of ours, whatever is taken for a line end."""
    title, *lines = Fence("0" * MARK_CHARS).text("title", text).splitlines()

    assert title == f"==== {'0' * MARK_CHARS} title"
    assert lines
    assert all(line.startswith("| ") for line in lines)


@given(st.lists(st.text(), min_size=1), st.data())
def test_a_mark_is_of_all_texts(texts: list[str], data: st.DataObject) -> None:
    """The same for the same texts, another one where one is changed or they are parted otherwise."""
    index = data.draw(st.integers(0, len(texts) - 1))
    changed = [*texts[:index], texts[index] + "x", *texts[index + 1 :]]

    mark = digest_mark(texts)

    assert (len(mark), mark) == (MARK_CHARS, digest_mark(list(texts)))
    assert len({mark, digest_mark(changed), digest_mark([*texts, ""])}) == 3

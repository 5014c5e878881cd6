"""Thoughts are taken out of an answer: what goes, what stays, and that it never fails or repeats itself."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.util.reasoning import opening_of_prompt, part_thinking, parted
from tests.tables import rows

PIECES = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<thinking>",
        "</thinking>",
        "<thi",
        "nk>",
        "</",
        "<",
        ">",
        "46",
        " ",
        "\n",
        "no, 47",
        "\ud800",
    ]
)


@rows(
    ("output", "answer"),
    [
        ("46", "46"),
        (" 46\n", " 46\n"),
        ("<think>12+34</think>46", "46"),
        ("<think>\n\n</think>\n\n46\n", "46"),
        ("<thinking>a</thinking> 46", "46"),
        ("It is <think>hm</think> 46", "It is   46"),
        ("<think>a</think>4<think>b</think>6", "4 6"),
        ("<think>I write <think> first</think>46", "46"),
        ("<think>a</thinking>46", "46"),
        ("12+34 is ...</think>46", "46"),
        ("a</think>b</think>46", "46"),
        ("<think>a</think>b<think>c</think>d</think>46<think>e</think>7", "46 7"),
        ("[THINK]a</think>b[/THINK]46</think>4[THINK]a", "4"),
        ("<think>a</think>b</think>46", "46"),
        ("<think>12+34 is", ""),
        (" \n<think>12+34 is", ""),
        ("<think>a</think>\n<think>b", ""),
        ("<think>a</think>", ""),
        ("a</think>\n", ""),
        ("46 <think>or", "46"),
        ("<think>a</think>46 <think>or", "46"),
        ("<thi<think>x</think>nk>46", "<thi nk>46"),
        ("<THINK>46", ""),
        ("<Think>12+34</THINK>46", "46"),
        ("[THINK]12+34[/THINK]46", "46"),
        ("12+34[/THINK]46", "46"),
        ("[think]46", "[think]46"),
        ("<think>[/THINK]12</think>46", "46"),
        ("<seed:think>12+34</seed:think>46", "46"),
        ("\u25c1think\u25b712+34\u25c1/think\u25b746", "46"),
        ("<|START_THINKING|>12+34<|END_THINKING|>46", "46"),
        ("", ""),
    ],
)
def test_what_is_left_is_the_answer(output: str, answer: str) -> None:
    """Reasoning goes, closed or not, and all before a closing tag alone; text before an unclosed one is the answer."""
    assert parted(output).answer == answer


@given(st.lists(PIECES, max_size=30).map("".join))
def test_a_second_time_changes_nothing(output: str) -> None:
    """Whatever tags a model writes, none is left by which more would be removed, closing ones least of all."""
    once = parted(output).answer

    assert parted(once).answer == once
    assert not re.search("</think(ing)?>", once)


@given(st.text(), st.text().filter(lambda text: "<" not in text), st.sampled_from(["think", "thinking"]))
def test_an_answer_behind_a_closed_thought_is_kept(thought: str, answer: str, tag: str) -> None:
    """Whatever the thought holds, text without tags behind its end is the answer."""
    assert parted(f"<{tag}>{thought}</{tag}>{answer}").answer == answer.strip()


HARMONY = "<|channel|>analysis<|message|>12\n+34<|end|><|start|>assistant<|channel|>final<|message|>46\nso"


@rows(
    ("output", "opening", "stops", "truncated", "found"),
    [
        ("46\n47", "", ("\n",), False, ("", "46", False, "\n47")),
        ("a b c", "", ("c", "b"), False, ("", "a ", False, "b c")),
        ("", "", ("\n",), False, ("", "", False, "")),
        ("<think>a\nb</think>46\n47", "", ("\n",), False, ("a\nb", "46", False, "\n47")),
        ("a\nb</think>46\n47", "<think>", ("\n",), False, ("a\nb", "46", False, "\n47")),
        ("a\nb</think>46\n47", "", ("\n",), False, ("a\nb", "46", False, "\n47")),
        ("46\n<think>a\nb</think>47", "", ("\n",), False, ("", "46", False, "\n<think>a\nb</think>47")),
        ("\n<think>a</think>46\n47", "", ("\n",), False, ("a", "46", False, "\n47")),
        ("12+34 is 46", "<think>", (), True, ("12+34 is 46", "", True, "")),
        ("12+34 is 46", "<think>", ("is",), False, ("12+34 is 46", "", True, "")),
        ("12+34 is 46", "", (), True, ("", "12+34 is 46", False, "")),
        ("46 <think>or", "", (), True, ("or", "", True, "")),
        ("46 <think>or", "", (), False, ("or", "46", False, "")),
        ("[THINK]a\n[/THINK]46\n47", "", ("\n",), False, ("a", "46", False, "\n47")),
        (HARMONY, "", ("\n",), False, ("12\n+34", "46", False, "\nso")),
        (f"{HARMONY}<|return|>", "", (), False, ("12\n+34", "46\nso", False, "")),
        (HARMONY[:36], "", (), True, ("12\n+34", "", True, "")),
        (HARMONY[30:], "<|channel|>analysis<|message|>", (), False, ("12\n+34", "46\nso", False, "")),
        ("12+34", "<|channel|>analysis<|message|>", (), True, ("12+34", "", True, "")),
    ],
)
def test_a_stop_string_ends_an_answer_and_no_reasoning(output, opening, stops, truncated, found) -> None:
    """The first one after the reasoning; reasoning that is not finished has no answer after it."""
    parts = parted(output, opening=opening, stops=stops, truncated=truncated)

    assert (parts.reasoning, parts.answer, parts.unfinished, output[parts.end :]) == found


@rows(
    ("prompt", "opening"),
    [
        ("Q<think>\n", "<think>"),
        ("Q[THINK]", "[THINK]"),
        ("Q<think>\n\n</think>\n\n", ""),
        ("Q</think>", ""),
        ("<think> Q", ""),
        ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>analysis<|message|>"),
        ("<|start|>assistant<|channel|>final<|message|>", ""),
        ("", ""),
    ],
)
def test_a_prompt_may_open_the_reasoning(prompt: str, opening: str) -> None:
    """By the tag that it ends with."""
    assert opening_of_prompt(prompt) == opening


@pytest.mark.long
def test_a_million_tags_are_one_pass() -> None:
    """Nothing is looked at again for every tag: what a model repeats for ever ends as well."""
    assert parted("<think>" * 1_000_000 + "46").answer == ""
    assert parted("<think></think>" * 500_000 + "46").answer == "46"
    assert parted("</think>" * 1_000_000 + "46").answer == "46"
    assert parted("46" + "<think>" * 1_000_000).answer == "46"


@rows(
    ("output", "reasoning"),
    [
        ("46", ""),
        ("<think>12+34</think>46", "12+34"),
        ("<think>\n\n</think>46", ""),
        ("<think>a</think>4<think> b\n</think>6", "a\n\nb"),
        ("<think>I write <think> first</think>46", "I write <think> first"),
        ("12+34 is ...</think>46", "12+34 is ..."),
        ("a</think>b</think>46", "ab"),
        ("<think>a</think>b</think>46<think>c</think>", "ab\n\nc"),
        ("<think>12+34 is", "12+34 is"),
        ("<think>a</think>\n<think>b", "a\n\nb"),
        ("46 <think>or", "or"),
        ("<think>a</think>46 <think>or", "a\n\nor"),
    ],
)
def test_what_is_removed_is_the_reasoning(output: str, reasoning: str) -> None:
    """Its parts in paragraphs; what stays in the answer is no part of it."""
    assert part_thinking(output) == (reasoning, parted(output).answer)

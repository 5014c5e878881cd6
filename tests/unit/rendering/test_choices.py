"""Questions with choices in tokens: what stands behind them, where question and choice part, and what is refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, Conversation, Datum, ModelInput, Sample
from crucible_worker.backends.base import Tokenizer
from crucible_worker.rendering.choices import (
    MAX_CHOICES,
    ChoiceForm,
    ChoiceTokens,
    UnnamedChoice,
    check_choices,
    named_choice,
    render_choices,
)
from tests.tables import rows

DATUM = Datum(model_input=ModelInput.of([5, 6]), loss_fn_inputs={})


@dataclasses.dataclass
class Pairs(Tokenizer):
    """A token per character behind one that begins a text, but for some pairs, which are one token."""

    pairs: Sequence[str] = ()
    has_chat_template: bool = False
    eos_token_id: int | None = None
    bos_token_id: int | None = 1
    begins: bool = True

    async def encode(self, text: str) -> list[Any]:
        return [*([1] if self.begins else []), *await self.encode_continuation(text)]

    async def encode_continuation(self, text: str) -> list[Any]:
        tokens: list[Any] = []
        while text:
            size = 2 if text[:2] in self.pairs else 1
            tokens.append(text[:size])
            text = text[size:]
        return tokens

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> list[Any]:
        text = "".join(f"<{message.role[0]}>{message.content}" for message in messages)
        return await self.encode_continuation(text + ("<a>" if generation_prompt else ""))


def question(*choices: str, input: Any = "2=", targets: Sequence[str] = ("A",)) -> Sample:
    """A sample with choices."""
    return Sample(id="q", input=input, targets=tuple(targets), choices=choices)


def words(found: ChoiceTokens) -> tuple[str, list[str]]:
    """Prompt and continuations as text."""
    return "".join(map(str, found.prompt)), ["".join(map(str, tokens)) for tokens in found.continuations]


async def test_text_stands_behind_the_question() -> None:
    """After the evaluator's delimiter, or else one space; a text begins with what the tokenizer begins it with."""
    plain = await render_choices(Pairs(), question("46", "no"), ChoiceForm.TEXT)
    parted = await render_choices(Pairs(), question("46", "no"), ChoiceForm.TEXT, "-")
    bare = await render_choices(Pairs(), question("46", "no"), ChoiceForm.TEXT, "")

    assert words(plain) == ("12=", [" 46", " no"])
    assert words(parted) == ("12=", ["-46", "-no"])
    assert words(bare) == ("12=", ["46", "no"])
    assert (plain.texts, parted.texts, bare.texts) == (("46", "no"),) * 3


async def test_the_seam_is_where_all_of_them_part() -> None:
    """A tokenizer that joins the question's end with a choice: both choices are measured from before that token."""
    joined = await render_choices(Pairs(pairs=("=4",)), question("46", "no"), ChoiceForm.TEXT, "")

    assert words(joined) == ("12", ["=46", "=no"])
    assert [len(tokens) for tokens in joined.continuations] == [2, 3]


async def test_a_question_that_is_joined_whole_cannot_be_asked() -> None:
    """Nothing would be left before the choices."""
    with pytest.raises(FailedPrecondition) as caught:
        await render_choices(Pairs(pairs=("24",), begins=False), question("4", "5", input="2"), ChoiceForm.TEXT, "")
    assert caught.value.reason == "NO_PROMPT"


async def test_letters_stand_behind_a_list_of_the_choices() -> None:
    """In plain text behind a blank, in an answer of a chat alone; the list is part of the user's last message."""
    listed = "2=\nA. 46\nB. no\nAnswer:"
    chat = Pairs(has_chat_template=True)
    turns = Conversation((ChatMessage("system", "s"), ChatMessage("user", "2=")))

    plain = await render_choices(Pairs(), question("46", "no"), ChoiceForm.LETTERS, "--")
    text = await render_choices(chat, question("46", "no"), ChoiceForm.LETTERS)
    conversation = await render_choices(chat, question("46", "no", input=turns), ChoiceForm.LETTERS)

    assert words(plain) == (f"1{listed}", [" A", " B"])
    assert words(text) == (f"<u>{listed}<a>", ["A", "B"])
    assert words(conversation) == (f"<s>s<u>{listed}<a>", ["A", "B"])
    assert list(plain.texts) == ["A", "B"]


@pytest.mark.parametrize(
    ("renderer", "prompt", "choice"),
    [("auto", "<u>2=<a>", "46"), ("raw", "12=", " 46"), ("role_colon", "1User: 2=\n\nAssistant:", " 46")],
)
async def test_renderers_decide_what_a_choice_follows(renderer: str, prompt: str, choice: str) -> None:
    """A choice stands where the model's answer would: raw goes on from the text, others answer a message."""
    found = await render_choices(
        Pairs(has_chat_template=True), question("46", "no"), ChoiceForm.TEXT, renderer=renderer
    )

    assert (words(found)[0], words(found)[1][0]) == (prompt, choice)


async def test_a_datum_has_choices_in_tokens() -> None:
    """They need no tokenizer, and have no text."""
    found = await render_choices(None, question("[7, 8]", "[9]", input=DATUM), ChoiceForm.TEXT)

    assert found == ChoiceTokens(prompt=[5, 6], continuations=[[7, 8], [9]], texts=[None, None])


async def test_text_needs_a_tokenizer() -> None:
    """A model whose tokenizer is elsewhere is asked in tokens."""
    with pytest.raises(FailedPrecondition) as caught:
        await render_choices(None, question("46", "no"), ChoiceForm.TEXT)
    assert caught.value.reason == "NO_TOKENIZER"


@rows(
    ("sample", "form", "field"),
    [
        (question("46"), ChoiceForm.TEXT, "choices"),
        (question(*map(str, range(MAX_CHOICES + 1))), ChoiceForm.TEXT, "choices"),
        (question(*map(str, range(27))), ChoiceForm.LETTERS, "choices"),
        (question("46", " "), ChoiceForm.TEXT, "choices[1]"),
        (question("46", "47", "46"), ChoiceForm.TEXT, "choices[2]"),
        (question("46", "47", targets=()), ChoiceForm.TEXT, "targets"),
        (question("[1]", "[2]", input=DATUM), ChoiceForm.LETTERS, "datum"),
        *((question("[1]", odd, input=DATUM), ChoiceForm.TEXT, "choices[1]") for odd in ("2", "[]", "[-1]", "[true]")),
        *((question("[1]", odd, input=DATUM), ChoiceForm.TEXT, "choices[1]") for odd in ("[1.5]", "x", '["a"]')),
        (question("[1, 2]", "[1,2]", input=DATUM), ChoiceForm.TEXT, "choices[1]"),
        (question("46", "47", input=Conversation(())), ChoiceForm.LETTERS, "conversation"),
        (question("4", "5", input=Conversation((ChatMessage("assistant", "x"),))), ChoiceForm.LETTERS, "conversation"),
    ],
)
def test_what_is_no_question_is_refused(sample: Sample, form: ChoiceForm, field: str) -> None:
    """By the path of what is wrong with it, whatever the model."""
    with pytest.raises(InvalidField) as caught:
        check_choices(sample, form)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("sample", "form"),
    [
        (question(*map(str, range(MAX_CHOICES))), ChoiceForm.TEXT),
        (question(*map(str, range(26))), ChoiceForm.LETTERS),
        (question("[1]", f"[{(1 << 31) - 1}]", input=DATUM), ChoiceForm.TEXT),
    ],
)
def test_what_just_fits_is_taken(sample: Sample, form: ChoiceForm) -> None:
    """As many choices as there may be, and the greatest token."""
    check_choices(sample, form)


@rows(
    ("target", "found"),
    [("46", 0), ("no", 1), ("A", 0), ("B", 1), ("C", 2)],
)
def test_a_target_names_a_choice_by_text_or_letter(target: str, found: int) -> None:
    """Without labels a target is the text of a choice, or its letter."""
    assert named_choice(target, ("46", "no", "x")) == found
    assert named_choice(target, ("A", "B", "C", "46", "no")) == {"46": 3, "no": 4}.get(target, found)


@rows(
    ("target", "choices", "labels", "says"),
    [
        ("D", ("46", "no"), (), "neither the text of a choice nor its letter"),
        ("a", ("46", "no"), (), "neither the text of a choice nor its letter"),
        ("", ("46", "no"), (), "neither the text of a choice nor its letter"),
        ("1", ("46", "no"), (), "a column named with index=COLUMN"),
        ("A", ("B", "A", "O", "AB"), (), "'A' is the letter of choice 0 and the text of choice 1: give the labels"),
        ("B", ("x", "y"), ("1", "2"), "neither a label nor the text of a choice"),
    ],
)
def test_a_target_that_decides_nothing_says_why(
    target: str, choices: Sequence[str], labels: Sequence[str], says: str
) -> None:
    """It names no choice, or it has two readings; both are named, with the cure."""
    with pytest.raises(UnnamedChoice, match=re.escape(says)):
        named_choice(target, choices, labels)


@rows(
    ("target", "labels", "found"),
    [("A", "ABCD", 0), ("B", "ABCD", 1), ("2", "1234", 1), ("AB", "1234", 3), ("A", "WXYZ", 1), ("A", "BADC", 1)],
)
def test_a_label_comes_before_a_text(target: str, labels: str, found: int) -> None:
    """The labels of the row decide; letters are not read next to them."""
    assert named_choice(target, ("B", "A", "O", "AB"), tuple(labels)) == found


async def test_a_choice_without_tokens_is_told_by_its_place() -> None:
    """A tokenizer that makes nothing of a text."""

    class Deaf(Pairs):
        async def encode_continuation(self, text: str) -> list[Any]:
            return [] if text == "no" else await super().encode_continuation(text)

    with pytest.raises(BridgeError) as caught:
        await render_choices(Deaf(has_chat_template=True), question("46", "no"), ChoiceForm.TEXT)
    assert caught.value.field == "choices[1]"

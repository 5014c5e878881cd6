"""Special tokens in texts: text where a row names them, tokens where a template writes them, and one BOS token."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage, ImageChunk, ReasoningPart, ToolCall
from crucible_worker.backends.local.protocol import tokens_from_bytes
from crucible_worker.backends.local.tokenizer import to_plain
from tests import needs
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import SPECIAL, byte_tokenizer

needs.modules("transformers")

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BEGIN, START, END, THINK, _ = SPECIAL


def byte_level(**options: Any) -> Any:
    """A token per byte, and the special tokens of a chat format."""
    return byte_tokenizer(**options)


def metaspace() -> Any:
    """Words with a mark for the space before them, also before the first word, as SentencePiece has them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = [chr(code) for code in range(33, 127)] + ["\u2581", "\n"]
    made = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Metaspace()
    made.add_special_tokens(list(SPECIAL))
    made.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A {END}", special_tokens=[(name, made.token_to_id(name)) for name in (BEGIN, END)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=BEGIN, eos_token=END)


def stripping() -> Any:
    """A tokenizer with special tokens that take the white space around them."""
    from tokenizers import AddedToken

    tokenizer = byte_tokenizer(special=SPECIAL[:1])
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [AddedToken(name, lstrip=True, rstrip=True) for name in SPECIAL[1:3]]}
    )
    return tokenizer


def words() -> Any:
    """A tokenizer whose vocabulary has the name of a special token as a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"<unk>": 0, "<end>": 1, "yes": 2}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", eos_token="<end>")


MADE = {"byte_level": byte_level, "metaspace": metaspace, "stripping": stripping}


def texts_of(tokenizer: Any, template: str = CHATML) -> Any:
    """What runs in a tokenizer's process."""
    from crucible_worker.backends.local.host.texts import Texts

    tokenizer.chat_template = template
    return Texts(tokenizer, 100_000)


def encoded(texts: Any, text: str, *, special: bool = True, named: bool = False) -> list[int]:
    """The tokens of a text."""
    (found,) = texts.answer({"op": "encode", "texts": [text], "special": special, "closed": False, "named": named})
    return tokens_from_bytes(found).tolist()


def chat(texts: Any, *messages: ChatMessage, named: bool = False) -> tuple[list[int], str]:
    """The tokens of a conversation, and its text."""
    plain = [to_plain(message) for message in messages]
    found = texts.answer({"op": "encode_chat", "messages": plain, "generation_prompt": True, "named": named})
    return tokens_from_bytes(found["tokens"]).tolist(), found["text"]


@rows("name", MADE)
def test_ordinary_text_has_the_tokens_of_transformers(name: str) -> None:
    """With and without what the tokenizer puts before a text, and by the chat template."""
    tokenizer = MADE[name]()
    texts = texts_of(tokenizer)
    turns = (ChatMessage("system", "Be brief."), ChatMessage("user", "  1 < 2 |> x\n"), ChatMessage("assistant", "y"))

    whole = tokenizer("What is 1 < 2?")["input_ids"]
    bare = tokenizer("What is 1 < 2?", add_special_tokens=False)["input_ids"]
    assert encoded(texts, "What is 1 < 2?", special=False) == bare
    assert encoded(texts, "What is 1 < 2?") == [tokenizer.bos_token_id, *bare]
    assert whole[0] == tokenizer.bos_token_id
    asked = [{"role": turn.role, "content": turn.content} for turn in turns]
    theirs = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert chat(texts, *turns)[0] == theirs


@rows(
    ("text", "named", "begins"),
    [
        (f"{BEGIN}x", False, 1),
        (f"{BEGIN}{BEGIN}x", False, 1),
        ("x", False, 1),
        (f"{BEGIN}x", True, 1),
        (f"{BEGIN}{BEGIN}x", True, 1),
        ("x", True, 1),
    ],
)
def test_a_prompt_has_one_token_that_begins_it(text: str, named: bool, begins: int) -> None:
    """Whatever the text begins with, in plain text and after a template that writes the token itself."""
    tokenizer = byte_level()
    texts = texts_of(tokenizer, "{{ bos_token }}{{ messages[0].content }}")

    for tokens in (encoded(texts, text, named=named), chat(texts, ChatMessage("user", text), named=named)[0]):
        assert tokens.count(tokenizer.bos_token_id) == begins
        assert tokens[0] == tokenizer.bos_token_id
        assert tokenizer.decode(tokens[1:]) == (text if not named else "x")


@rows("name", MADE)
def test_names_in_text_are_text(name: str) -> None:
    """Their tokens are those of other letters in their place, if every token is a letter; they decode to the text."""
    tokenizer = MADE[name]()
    texts = texts_of(tokenizer)
    text, other = f"Is {END} the end?", "Is <@im_end@> the end?"
    bar, at = (tokenizer("".join(("x", one)), add_special_tokens=False)["input_ids"][-1] for one in "|@")

    tokens = encoded(texts, text, special=False)
    assert tokenizer.eos_token_id not in tokens
    assert [at if token == bar else token for token in tokens] == encoded(texts, other, special=False)
    assert tokenizer.decode(tokens) == text
    assert tokenizer.eos_token_id in encoded(texts, text, special=False, named=True)


@rows("name", MADE)
@pytest.mark.parametrize("place", ["Is {} it?", "{}", "  {}\n", "{0}{0}"])
def test_a_template_keeps_its_markers_and_a_message_its_text(name: str, place: str) -> None:
    """As with the same message in other letters; what is shown has the name, and special_tokens reads it."""
    tokenizer = MADE[name]()
    texts = texts_of(tokenizer)
    bar, at = (tokenizer("".join(("x", one)), add_special_tokens=False)["input_ids"][-1] for one in "|@")
    asked = place.format(END)

    tokens, shown = chat(texts, ChatMessage("system", "s"), ChatMessage("user", asked))
    others, _ = chat(texts, ChatMessage("system", "s"), ChatMessage("user", place.format("<@im_end@>")))

    assert [at if token == bar else token for token in tokens] == others
    assert [token for token in tokens if token in tokenizer.added_tokens_decoder] == [
        tokenizer.convert_tokens_to_ids(name) for name in (BEGIN, START, END, START, END, START)
    ]
    assert shown == f"{BEGIN}{START}system\ns{END}\n{START}user\n{asked}{END}\n{START}assistant\n"
    read, _ = chat(texts, ChatMessage("system", "s"), ChatMessage("user", asked), named=True)
    assert read.count(tokenizer.eos_token_id) == 2 + place.count("{")


def test_names_in_calls_of_tools_are_text() -> None:
    """Also where the JSON of the arguments has escaped characters."""
    tokenizer = byte_level()
    texts = texts_of(tokenizer)
    for arguments in (json.dumps({"q": END}), '{"q": "\\u003c|im_end|>"}'):
        call = ChatMessage("assistant", "", (), (ToolCall(name="find", arguments=arguments, id="c"),))
        tokens, shown = chat(texts, ChatMessage("user", "go"), call)
        assert tokens.count(tokenizer.eos_token_id) == 2
        assert f'{{"q": "{END}"}}' in shown


def test_names_in_reasoning_and_in_names_of_writers_are_text() -> None:
    """As in a text; tags of reasoning in reasoning are left to the template."""
    tokenizer = byte_level()
    texts = texts_of(
        tokenizer,
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.name }}\n{{ m.reasoning_content }};{{ m.content }}"
        "<|im_end|>{% endfor %}",
    )
    asked = ChatMessage("user", "q", name=f"Ann{END}")
    answered = ChatMessage("assistant", "a", reasoning=f"one {END}{THINK} two")

    tokens, shown = chat(texts, asked, answered)

    assert shown == f"{START}user Ann{END}\n;q{END}{START}assistant \none {END}{THINK} two;a{END}"
    assert tokens.count(tokenizer.eos_token_id) == 2
    assert tokens.count(tokenizer.convert_tokens_to_ids(THINK)) == 1


def test_names_in_parts_of_reasoning_are_text() -> None:
    """Where a message has several, and where it has an image besides."""
    special = texts_of(byte_level())._special
    image = ImageChunk(data=b"", format="png")
    several = ChatMessage("assistant", parts=(ReasoningPart(f"one {END}"), "x", ReasoningPart(f"{END} two")))
    shown = ChatMessage("assistant", parts=(ReasoningPart(f"one {END}"), "x", image))

    found = special.hide([several, shown])

    assert found is not None
    hidden, _ = found
    assert not any(END in str(message) for message in hidden)
    assert special.restore(hidden[1].reasoning) == f"one {END}"
    assert [type(part) for part in hidden[0].parts] == [ReasoningPart, str, ReasoningPart]
    assert hidden[1].parts == ("x", image)


def test_tags_of_reasoning_in_an_answer_are_left_to_the_template() -> None:
    """Templates look for them there; in a question they are text."""
    tokenizer = byte_level()
    texts = texts_of(tokenizer, "{% for m in messages %}{{ m.content.split('</think>')[-1] }};{% endfor %}")
    answered = ChatMessage("assistant", "<think>a</think>b")

    assert chat(texts, answered)[1] == "b;"
    tokens, shown = chat(texts, ChatMessage("user", THINK), answered)
    assert (shown, tokenizer.decode(tokens)) == (f"{THINK};b;",) * 2
    assert tokenizer.convert_tokens_to_ids(THINK) not in tokens


@pytest.mark.parametrize("special", [True, False])
def test_a_name_that_is_always_read_as_the_token_is_refused(special: bool) -> None:
    """A vocabulary may have it as a word: then nothing else than the text can be measured. Unknown words are fine."""
    texts = texts_of(words())

    assert encoded(texts, "yes no <unk>", special=special) == [2, 0, 0]
    with pytest.raises(InvalidField, match="names the special token '<end>'") as caught:
        encoded(texts, "yes <end> yes", special=special)
    assert caught.value.reason == "SPECIAL_TOKEN_IN_TEXT"
    assert encoded(texts, "yes <end> yes", special=special, named=True) == [2, 1, 2]


def test_a_tokenizer_that_cannot_split_refuses_a_name() -> None:
    """One in Python leaves either all of its added tokens unread, or none: ordinary text has its usual tokens."""
    tokenizer = byte_level()
    texts = texts_of(tokenizer)
    texts._special._can_split = False

    assert encoded(texts, "1+1=") == tokenizer("1+1=")["input_ids"]
    for ask in (lambda: encoded(texts, f"a{END}"), lambda: chat(texts, ChatMessage("user", END))):
        with pytest.raises(InvalidField) as caught:
            ask()
        assert caught.value.reason == "SPECIAL_TOKEN_IN_TEXT"


@rows("renderer", ["role_colon", "qwen3_instruct", "qwen3"])
def test_renderers_of_tinker_cookbook_read_names_as_text(renderer: str) -> None:
    """Their markers stay; prompts and weights are those of the same message in other letters."""
    pytest.importorskip("tinker_cookbook.renderers", reason=needs.MISSING["tinker_cookbook"])
    tokenizer = byte_level()
    texts = texts_of(tokenizer)
    bar, at = (tokenizer("".join(("x", one)), add_special_tokens=False)["input_ids"][-1] for one in "|@")

    def rendered(asked: str, train_on: str | None, *, named: bool = False) -> dict[str, Any]:
        plain = [to_plain(one) for one in (ChatMessage("user", asked), ChatMessage("assistant", "y"))]
        messages = plain[:1] if train_on is None else plain
        return texts.answer(
            {"op": "render", "renderer": renderer, "messages": messages, "train_on": train_on, "named": named}
        )

    for train_on in (None, "last_assistant_message"):
        found, other = (rendered(asked, train_on) for asked in (f"Is {END} it?", "Is <@im_end@> it?"))
        ordinary = rendered("Is <@im_end@> it?", train_on, named=True)
        assert [at if token == bar else token for token in found["tokens"]] == list(other["tokens"])
        assert (other["tokens"], other["weights"]) == (ordinary["tokens"], ordinary["weights"])
        assert np.array_equal(found["weights"] or [], other["weights"] or [])
        assert f"Is {END} it?" in found["text"]

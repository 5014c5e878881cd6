"""Prompts and targets in plain text have the tokens that lm-evaluation-harness measures for the same rows.

Its rule, written down here once more: white space at the end of the context moves to the continuation, both are encoded
as one text, and the continuation is what follows as many tokens as the context alone has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crucible_bridge.types import ChatMessage, Sample
from crucible_worker.rendering import render_supervised
from crucible_worker.rendering.choices import ChoiceForm, render_choices
from crucible_worker.rendering.prompts import Prompted
from crucible_worker.rendering.supervised import render_behind
from tests import needs
from tests.tables import rows
from tests.unit.rendering.tokenizers_made import HeldTokenizer

needs.modules("transformers")

FACTS = (
    ("What is the capital of France?", ("Rome", "Paris", "Oslo", "Bern"), 1),
    ("Which gas do plants take in?", ("carbon dioxide", "oxygen", "a noble gas", "steam"), 0),
    ("How many legs does a spider have?", ("six", "four", "eight", "ten"), 2),
)
PASSAGES = (
    ("Bears sleep in winter.", "do bears sleep in winter", "yes"),
    ("The Rhine ends in the North Sea.", "does the rhine end in the black sea", "no"),
)
STORIES = (
    "The old man took his hat and left the house without his hat",
    "She asked for tea, and the waiter brought her a cup of tea",
)


def byte_level(*, bos: bool) -> Any:
    """A byte-level BPE tokenizer, trained on the rows: words begin with their space, as in GPT-2 and Llama 3."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet)
    made.train_from_iterator([*STORIES, *(" ".join((asked, *choices)) for asked, choices, _ in FACTS)] * 3, trainer)
    if bos:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>" if bos else None, eos_token="</s>")


def metaspace(*, bos: bool) -> Any:
    """Likewise with a mark in place of each space, and one before the first word, as in Llama 2 and Mistral."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.decoder = decoders.Metaspace()
    letters = [chr(code) for code in range(33, 127)] + ["\n"]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "</s>"], initial_alphabet=letters)
    made.train_from_iterator([*STORIES, *(" ".join((asked, *choices)) for asked, choices, _ in FACTS)] * 3, trainer)
    if bos:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>" if bos else None, eos_token="</s>")


def encoded_pair(tokenizer: Any, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """The tokens of context and continuation by the rule of lm-evaluation-harness."""
    blanks = len(context) - len(context.rstrip())
    if blanks:
        continuation, context = context[-blanks:] + continuation, context[:-blanks]
    before = tokenizer.encode(context)
    return before, tokenizer.encode(context + continuation)[len(before) :]


@rows("bos", [True, False])
@rows("made", [byte_level, metaspace])
async def test_questions_with_choices(made: Any, bos: bool) -> None:
    """Of ARC: "Question: ...", "Answer:", and the text of each choice after the default delimiter, a space."""
    tokenizer = made(bos=bos)
    for asked, choices, right in FACTS:
        context = f"Question: {asked}\nAnswer:"
        sample = Sample(input=context, choices=choices, targets=(choices[right],))

        found = await render_choices(HeldTokenizer(tokenizer), sample, ChoiceForm.TEXT, renderer="raw")

        for choice, tokens in zip(choices, found.continuations, strict=True):
            assert (list(found.prompt), list(tokens)) == encoded_pair(tokenizer, context, f" {choice}")


@rows("bos", [True, False])
@rows("made", [byte_level, metaspace])
async def test_questions_on_passages_with_examples(made: Any, bos: bool) -> None:
    """Of BoolQ, with a description and an example: its target follows the same delimiter, and two line ends."""
    tokenizer = made(bos=bos)
    texts = [f"{passage}\nQuestion: {asked}?\nAnswer:" for passage, asked, _ in PASSAGES]
    turns = (("system", "Read."), ("user", texts[0]), ("assistant", PASSAGES[0][2]), ("user", texts[1]))
    made_of_row = Prompted(tuple(ChatMessage(*turn) for turn in turns), question=texts[1])
    sample = Sample(input=made_of_row, choices=("no", "yes"), targets=(PASSAGES[1][2],))

    found = await render_choices(HeldTokenizer(tokenizer), sample, ChoiceForm.TEXT, renderer="raw")

    context = f"Read.\n\n{texts[0]} {PASSAGES[0][2]}\n\n{texts[1]}"
    for choice, tokens in zip(sample.choices, found.continuations, strict=True):
        assert (list(found.prompt), list(tokens)) == encoded_pair(tokenizer, context, f" {choice}")


@rows("bos", [True, False])
@rows("made", [byte_level, metaspace])
async def test_last_words(made: Any, bos: bool) -> None:
    """Of LAMBADA: the target brings its space, and no other is put before it, whether or not the text ends so."""
    tokenizer = made(bos=bos)
    for story in STORIES:
        text, _, word = story.rpartition(" ")
        before, after = encoded_pair(tokenizer, text, f" {word}")
        for sample in (
            Sample(input=text, targets=(f" {word}",)),
            Sample(input=text, targets=(word,)),
            Sample(input=f"{text} ", targets=(word,)),
        ):
            held = HeldTokenizer(tokenizer)
            for datum in (await render_supervised(held, sample, renderer="raw"), await render_behind(held, sample)):
                targets, weights = (np.asarray(datum.loss_fn_inputs[key]) for key in ("target_tokens", "weights"))
                assert [*datum.model_input.tokens().tolist(), int(targets[-1])] == [*before, *after]
                assert targets[weights > 0].tolist() == after


async def test_a_token_across_the_seam_belongs_to_the_target() -> None:
    """Without a delimiter a tokenizer may join the end of a prompt with a target: the text is measured, not less."""
    tokenizer = byte_level(bos=True)
    whole = tokenizer.encode("She asked for tea")
    prompt, target = "She asked for t", "ea"
    assert whole[: len(tokenizer.encode(prompt))] != tokenizer.encode(prompt)
    held = HeldTokenizer(tokenizer)
    held.target_delimiter = ""

    datum = await render_supervised(held, Sample(input=prompt, targets=(target,)), renderer="raw")

    targets, weights = (np.asarray(datum.loss_fn_inputs[key]) for key in ("target_tokens", "weights"))
    assert [*datum.model_input.tokens().tolist(), int(targets[-1])] == whole
    assert tokenizer.decode(targets[weights > 0]) == " tea"

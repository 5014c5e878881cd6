"""F1, BLEU and ROUGE-L: parity with the originals, bounds, and what is said where a library is missing."""

import collections
import importlib.util
import re
import string

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import Verdict
from crucible_worker.grading import registry, text
from crucible_worker.grading.text import F1, MAX_BLEU_CHARS, MAX_ROUGE_CELLS, Bleu, Rouge

WORDS = (
    "the",
    "a",
    "cat",
    "Cat",
    "sat,",
    "on",
    "mat.",
    "mat-rug",
    "it's",
    "1,5",
    "x",
    "<",
    "&",
    "&amp;",
    "--",
    "straße",
)
words = st.lists(st.sampled_from((*WORDS, "<skipped>")), max_size=12).map(" ".join)
targets = st.lists(words.filter(str.strip), min_size=1, max_size=3)


def _squad_f1(prediction: str, target: str) -> float:
    """F1 as its authors define it: lower case, no punctuation, no articles, words shared over words."""

    def tokens(text: str) -> collections.Counter[str]:
        text = "".join(character for character in text.lower() if character not in string.punctuation)
        return collections.Counter(re.sub(r"\b(a|an|the)\b", " ", text).split())

    said, wanted = tokens(prediction), tokens(target)
    shared = sum((said & wanted).values())
    return 2 * shared / (said.total() + wanted.total()) if shared else 0.0


@given(words, targets)
def test_bleu_is_sacrebleus(said: str, wanted: list[str]) -> None:
    """With case the score is the sentence BLEU of sacrebleu over 100, without that of the texts in lower case."""
    exact = Bleu(case_sensitive=True).grade_now(said, wanted)
    folded = Bleu().grade_now(said, wanted)

    lower = [text.casefold() for text in (said, *wanted)]
    assert exact.score == pytest.approx(sacrebleu.sentence_bleu(said.strip(), wanted).score / 100)
    assert folded.score == pytest.approx(sacrebleu.sentence_bleu(lower[0], lower[1:]).score / 100)


@given(words, targets)
def test_rouge_is_rouge_scores(said: str, wanted: list[str]) -> None:
    """The score is the best F of ROUGE-L over the targets; without words of theirs it is UNDECIDED."""
    original = rouge_scorer.RougeScorer(["rougeL"])
    grade = Rouge().grade_now(said, wanted)

    if all(re.search("[A-Za-z0-9]", target) for target in wanted):
        assert grade.score == pytest.approx(original.score_multi(wanted, said)["rougeL"].fmeasure)
    else:
        assert grade.verdict is Verdict.UNDECIDED


@given(words.filter(lambda text: "1,5" not in text), targets)
def test_f1_is_squads(said: str, wanted: list[str]) -> None:
    """On texts without numbers or signs it is what SQuAD's evaluation gives."""
    wanted = [re.sub(r"1,5|&amp;|<|&|--", "", target) for target in wanted]
    said = re.sub(r"&amp;|<|&|--", "", said)
    grade = F1().grade_now(said, wanted)

    if grade.verdict is not Verdict.UNDECIDED:
        lower = said.casefold()
        assert grade.score == pytest.approx(max(_squad_f1(lower, target.casefold()) for target in wanted))


@pytest.mark.parametrize(("size", "scored"), [(MAX_BLEU_CHARS, True), (MAX_BLEU_CHARS + 1, False)])
def test_bleu_is_bounded(size: int, scored: bool) -> None:
    """Beyond so many characters of response and targets it is UNDECIDED, and the reason says the limit."""
    grade = Bleu().grade_now("a b " * (size // 4 - 2) + "c" * (5 + size % 4), ["a", "b", "c"])

    assert grade.verdict.scored is scored
    assert (f"at most {MAX_BLEU_CHARS:,}" in grade.reason) is not scored


@pytest.mark.parametrize(("count", "scored"), [(MAX_ROUGE_CELLS // 1000, True), (MAX_ROUGE_CELLS // 1000 + 1, False)])
def test_rouge_is_bounded(count: int, scored: bool) -> None:
    """Beyond so many pairs of words, over all targets, it is UNDECIDED, and the reason says the limit."""
    grade = Rouge().grade_now("a " * count, ["b " * 400, "c " * 600])

    assert grade.verdict.scored is scored
    assert (f"at most {MAX_ROUGE_CELLS:,}" in grade.reason) is not scored


def test_bleu_keeps_no_texts() -> None:
    """The library's tokenizers keep what they have seen for good; after a grade they have forgotten it."""
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a
    from sacrebleu.tokenizers.tokenizer_re import TokenizerRegexp

    Bleu().grade_now("some text", ["some other text"])

    for tokenizer in (Tokenizer13a, TokenizerRegexp):
        assert tokenizer.__call__.cache_info().currsize == 0


@pytest.mark.parametrize(
    ("name", "module", "package"), [("bleu", "sacrebleu", "sacrebleu"), ("rouge", "rouge_score", "rouge-score")]
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str) -> None:
    """Without the extra the grader cannot be made, and the error says what to install; the others can."""
    find = importlib.util.find_spec
    monkeypatch.setattr(text.importlib.util, "find_spec", lambda asked: None if asked == module else find(asked))

    with pytest.raises(
        FailedPrecondition, match=rf"{package} is not installed: pip install 'crucible-bridge\[text\]'"
    ) as caught:
        registry.create(name, {}, name_field="grader", options_field="options")

    assert caught.value.reason == "EXTRA_NOT_INSTALLED"
    registry.create("f1", {}, name_field="grader", options_field="options")

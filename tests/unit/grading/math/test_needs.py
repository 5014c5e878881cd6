"""Rules that look closer at a text only if it has what they need."""

import random
from collections.abc import Iterator

from crucible_worker.grading.math.decide import _LETTER, _LONE_LETTER, _undelimited
from crucible_worker.grading.math.extras.spellings import _RULES, _Rule
from crucible_worker.grading.math.text import choice
from tests.tables import rows

MIN_HITS = 50

PARTS = {
    "regional_numerals": r"1 12 123 234 . , ' ~ \, x",
    "unit_names": r"1 5 \text{ \mathrm{ \mbox{ \rm{ } \mu \Omega m k km Hz g s metre litre re tre $ \, ~",
    "log_is_natural": r"log \log \ln ln x _ 2 ( )",
    "vector_notations": r"\mathbf{ \vec{ \hat{ \hat \widehat{ \bm{ \boldsymbol{ \overrightarrow{ } i \imath v AB 2 +",
    "fold_base_letters": r"1a F a0 12 _{16} _{ 16 } _{2} } \text{ x",
    "choices": r"A B J a c k 12 x ( ) . : \text{ \textbf{ } $ \( \) \left( \right) \quad \, option Choice",
}


def _texts(name: str) -> Iterator[str]:
    """Texts that are put together from parts of what a rule looks for."""
    chosen = random.Random(name)
    parts = [*PARTS[name].split(), " "]
    for _ in range(20_000):
        yield chosen.choice(("", " ")).join(chosen.choices(parts, k=chosen.randint(1, 7)))


@rows("rule", _RULES, ids=lambda rule: rule.option)
def test_a_text_without_what_a_rule_needs_is_not_respelled(rule: _Rule) -> None:
    """No rule would change a text that it is not applied to."""
    changed = [text for text in _texts(rule.option) if rule.respell(text) != text]

    assert len(changed) > MIN_HITS
    assert [text for text in changed if not rule.needs.search(text)] == []


def test_a_text_without_a_lone_letter_is_no_choice() -> None:
    """A choice has a letter without another letter beside it, also between delimiters of mathematics."""
    texts = [(text, _undelimited(text)) for text in _texts("choices")]
    choices = [text for text, bare in texts if choice(bare) or _LETTER.fullmatch(bare)]

    assert len(choices) > MIN_HITS
    assert [text for text in choices if not _LONE_LETTER.search(text)] == []

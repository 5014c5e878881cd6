r"""Templates of prompts: names in braces, and Jinja2 in its sandbox."""

import dataclasses
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import ChatMessage, Conversation, Datum, Sample
from crucible_worker.rendering.templates import MAX_PROMPT_CHARS, BadTemplate, columns_of, fill, is_jinja, rendered
from tests.tables import rows

ROW = Sample(
    id="r1",
    input="Capital of France?",
    targets=("Paris", "paris"),
    choices=("Rome", "Paris"),
    metadata={"topic": "geography", "Question text": "q", "input": "hidden", "id": "own"},
)
COLUMNS = columns_of(ROW)


@rows(
    ("template", "text"),
    [
        ("{input}", "Capital of France?"),
        ("Q: {input}\nA:", "Q: Capital of France?\nA:"),
        ("{target} of {targets}", "Paris of Paris\nparis"),
        ("{choices}", "A. Rome\nB. Paris"),
        ("{topic}/{id}/{metadata.id}/{metadata.input}", "geography/r1/own/hidden"),
        ("{Question text}", "q"),
        (r"\boxed{} {1, 2} {a-b} {", r"\boxed{} {1, 2} {a-b} {"),
        ("{input", "{input"),
        ("no column", "no column"),
    ],
)
def test_names_in_braces_are_columns(template, text):
    """What every row has goes before metadata of that name; braces around what is no name are text."""
    assert not is_jinja(template)
    assert fill(template, COLUMNS) == text


def test_choices_are_listed_with_the_labels_of_the_row():
    """A target is one of them: letters of another order would name other choices."""
    row = dataclasses.replace(ROW, targets=("2",), choice_labels=("2", "1"))
    assert fill("{choices}\n{choice_labels}", columns_of(row)) == "2. Rome\n1. Paris\n2\n1"


@rows("template", ["{inputt}", "{metadata.x}", "{metadata}", "{answer}", r"\frac{a}{b}"])
def test_a_name_that_is_no_column_is_refused(template):
    """A misspelt column is not sent as it stands; the error has the columns there are, and the cure."""
    with pytest.raises(BadTemplate, match=r"the row has .*choices, id, input.*the question is input.*Jinja2"):
        fill(template, COLUMNS)


@pytest.mark.parametrize("over", [0, 1])
def test_what_a_template_makes_is_bounded(over):
    """At the limit it is taken, beyond it is refused, however it comes to that."""
    columns = columns_of(Sample(input="x" * (MAX_PROMPT_CHARS // 2)))
    for template in ("{input}{input}" + "y" * over, "y" * over + "{input}{input}"):
        if over:
            with pytest.raises(BadTemplate, match="makes more than 1,000,000 characters"):
                fill(template, columns)
        else:
            assert len(fill(template, columns)) == MAX_PROMPT_CHARS
    worked, said = rendered(("{{ input }}{{ input }}" + "y" * over, columns))
    assert (worked, len(said) if worked else said) == (
        (False, "makes more than 1,000,000 characters of the row") if over else (True, MAX_PROMPT_CHARS)
    )


@rows(
    ("template", "text"),
    [
        ("{{ input }}", "Capital of France?"),
        ("{{ target }} {{ topic | upper }}", "Paris GEOGRAPHY"),
        ("{% for choice in choices %}\n{{ loop.index }}) {{ choice }}\n{% endfor %}\n", "1) Rome\n2) Paris\n"),
        ("{{ metadata['input'] }}{# a note #}", "hidden"),
        (r"\boxed{} {input} {{ id }}", r"\boxed{} {input} r1"),
        ("{% if target is defined %}yes{% endif %}", "yes"),
        ("<b>{{ '<&>' }}</b>\n", "<b><&></b>\n"),
    ],
)
def test_jinja_has_the_same_columns(template, text):
    """Where a text has one of its marks, single braces are text; nothing is escaped, and a last line end stays."""
    assert is_jinja(template)
    assert rendered((template, COLUMNS)) == (True, text)


@rows(
    ("template", "told"),
    [
        ("{{ inputt }}", "'inputt' is undefined; the row has Question text, choices"),
        ("{{ input", "is no template of Jinja2: line 1"),
        ("{% for %}", "is no template of Jinja2: line 1"),
        ("a\n{% endif %}", "is no template of Jinja2: line 2"),
        ("{{ input.__class__ }}", "cannot be filled"),
        ("{{ ''.__class__.__mro__ }}", "cannot be filled"),
        ("{{ cycler.__init__.__globals__ }}", "cannot be filled"),
        ("{{ choices.append('x') }}", "cannot be filled"),
        ("{% for i in range(10**9) %}{% endfor %}", "cannot be filled: OverflowError"),
        ("{{ 1 / 0 }}", "cannot be filled: ZeroDivisionError"),
        ("{% include 'x' %}", "cannot be filled"),
    ],
)
def test_what_jinja_refuses_is_told(template, told):
    """Undefined names, syntax, and what leads out of the sandbox are errors of the template."""
    worked, said = rendered((template, COLUMNS))
    assert (worked, told in said) == (False, True), said


def test_a_row_without_a_target_has_no_such_column():
    """It is an error to name it, not an empty text; metadata of that name does not stand in for it."""
    columns = columns_of(Sample(input="a", metadata={"target": "x"}))
    with pytest.raises(BadTemplate, match="names the column 'target'"):
        fill("{target}", columns)
    assert rendered(("{{ target }}", columns))[0] is False
    assert fill("{metadata.target}", columns) == "x"


def test_the_input_of_a_conversation_is_its_last_message():
    """That is what a template makes anew."""
    messages = (ChatMessage("system", "be"), ChatMessage("user", "hi"))
    assert columns_of(Sample(input=Conversation(messages)))["input"] == "hi"


def test_tokens_have_no_columns():
    """A Datum goes as it is."""
    with pytest.raises(BadTemplate, match="the row is tokens"):
        columns_of(Sample(input=Datum(model_input=[1], loss_fn_inputs={})))


@given(st.text(alphabet=string.ascii_letters + "{}%# .\n", max_size=200))
def test_any_text_is_filled_or_refused(template):
    """No template breaks its reader; one without a name in braces is left as it is."""
    if is_jinja(template):
        worked, said = rendered((template, COLUMNS))
        assert isinstance(worked, bool)
        assert isinstance(said, str)
        return
    try:
        text = fill(template, COLUMNS)
    except BadTemplate:
        return
    if "{" not in template:
        assert text == template

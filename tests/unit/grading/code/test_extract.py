"""Where the program of a response is."""

from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.grading.code.extract import program_of
from tests.tables import rows

CASES = {
    "nothing else": ("def f(): pass", (), "def f(): pass", "whole"),
    "one block": ("Here:\n```python\nx = 1\n```\nDone.", (), "x = 1\n", "block"),
    "no language": ("```\nx = 1\n```", (), "x = 1\n", "block"),
    "the last": ("```python\nx = 1\n```\nor\n```py\nx = 2\n```", (), "x = 2\n", "block"),
    "the one that defines": (
        "```python\ndef f(): pass\n```\n```python\nprint(f())\n```",
        ("f",),
        "def f(): pass\n",
        "block",
    ),
    "the last that defines": ("```\nf = 1\n```\n```\nf = 2\n```\n```\nf()\n```", ("f",), "f = 2\n", "block"),
    "a class": ("```\nclass F: pass\n```\n```\nF()\n```", ("F",), "class F: pass\n", "block"),
    "none defines": ("```\na\n```\n```\nb\n```", ("f",), "b\n", "block"),
    "a name within a name": ("```\ndef f(): 1\n```\n```\ndef ff(): 2\n```", ("f",), "def f(): 1\n", "block"),
    "another language": ("```python\nx = 1\n```\n```text\n1\n```", (), "x = 1\n", "block"),
    "another language alone": ("```javascript\nx = 1\n```", (), "x = 1\n", "block"),
    "never closed": ("```python\nx = 1\ny = 2", (), "x = 1\ny = 2", "block"),
    "tildes": ("~~~python\nx = '```'\n~~~", (), "x = '```'\n", "block"),
    "a longer fence": ("````\n```\nx\n```\n````", (), "```\nx\n```\n", "block"),
    "an attribute": ('```python title="a.py"\nx = 1\n```', (), "x = 1\n", "block"),
    "code in a line": ("use ```x``` or `y`", (), "use ```x``` or `y`", "whole"),
    "empty": ("", ("f",), "", "whole"),
    "indented, in a list": (
        "1. So:\n   ```python\n   if x:\n       y\n\n  z\n   ```",
        (),
        "if x:\n    y\n\nz\n",
        "block",
    ),
    "indented deeper than its fence": (" ```\n     x\n ```", (), "    x\n", "block"),
    "in a tag": ("<answer>```python\nx = 1\n```</answer>", (), "x = 1\n", "block"),
    "in a tag on lines": ("<answer>\n```python\nx = 1\n```\n</answer>", (), "x = 1\n", "block"),
    "in tags after another": (
        "<think>```python\nx = 1\n```</think>\n\n<answer> <code>```\nx = 2\n```</code></answer>",
        (),
        "x = 2\n",
        "block",
    ),
    "a mark before a tag opens nothing": ("x = 1\n```</answer>\ny = 2", (), "x = 1\n```</answer>\ny = 2", "whole"),
    "closed at the end of a line": ("```python\nx = 1```", (), "x = 1", "block"),
    "closed at the end of a line, and prose": ("```python\nx = 1\ny = 2``` \nThat is it.", (), "x = 1\ny = 2", "block"),
    "a mark at the end of a line": ("```\nx = '```\ny'\n```\n", (), "x = '```\ny'\n", "block"),
}


@rows("name", CASES)
def test_the_program_is_found(name: str):
    """A block that defines what is wanted, else the last, else all of it."""
    response, wanted, program, how = CASES[name]

    assert program_of(response, wanted) == (program, how)


@given(st.text("`~ \npythondef:=", max_size=80), st.lists(st.text("f.(", min_size=1, max_size=3), max_size=2))
def test_the_program_is_a_part_of_any_response(response: str, wanted: list[str]):
    """Nothing is made up, and nothing fails."""
    program, how = program_of(response, wanted)

    assert set(program.replace("\n", "")) <= set(response)
    assert all(line in response for line in program.split("\n"))
    assert how in ("block", "whole")

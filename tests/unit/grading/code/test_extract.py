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
    "a body": ("```\n    print(1)\n    return x\n```", (), "    print(1)\n    return x\n", "block"),
    "a script that is indented": ("```\n    x = 1\n    print(x)\n```", (), "x = 1\nprint(x)\n", "block"),
    "indented as a whole": ("```python\n    def f():\n        pass\n```", ("f",), "def f():\n    pass\n", "block"),
    "a body with a function in it": (
        "```python\n    def g():\n        pass\n    x = g()\n```",
        ("f",),
        "    def g():\n        pass\n    x = g()\n",
        "block",
    ),
    "in a tag": ("<answer>```python\nx = 1\n```</answer>", (), "x = 1\n", "block"),
    "in a tag on lines": ("<answer>\n```python\nx = 1\n```\n</answer>", (), "x = 1\n", "block"),
    "in tags after another": (
        "<think>```python\nx = 1\n```</think>\n\n<answer> <code>```\nx = 2\n```</code></answer>",
        (),
        "x = 2\n",
        "block",
    ),
    "a mark before a tag opens nothing": ("x = 1\n```</answer>\ny = 2", (), "x = 1\n", "whole"),
    "closed at the end of a line": ("```python\nx = 1```", (), "x = 1", "block"),
    "closed at the end of a line, and prose": ("```python\nx = 1\ny = 2``` \nThat is it.", (), "x = 1\ny = 2", "block"),
    "versions of Python": ("```python3.12\nx = 1\n```\n```text\n1\n```", (), "x = 1\n", "block"),
    "a name of a file": ("```python:solve.py\nx = 1\n```\n```\n1\n```", ("x",), "x = 1\n", "block"),
    "behind a sentence": ("The program: ```python\nx = 1\n```\nDone.", (), "x = 1\n", "block"),
    "behind the dot of a list": ("- ```python\n  if x:\n      y\n  ```\nDone.", (), "if x:\n    y\n", "block"),
    "deep in a list": ("So\n\n      ```python\n      x = 1\n      ```\n", ("x",), "x = 1\n", "block"),
    "in a text of a program": (
        'def f():\n    """\n    ```python\n    f()\n    ```\n    """\n',
        ("f",),
        'def f():\n    """\n    ```python\n    f()\n    ```\n    """\n',
        "whole",
    ),
    "opened by the prompt": ("def f(): 1\n```", ("f",), "def f(): 1\n", "whole"),
    "opened by the prompt, and prose": ("def f(): 1\n```\nIt is one.", ("f",), "def f(): 1\n", "whole"),
    "opened by the prompt, and output": ("x = 1\n```\nIt prints:\n```\n1\n```\n", (), "x = 1\n", "whole"),
    "opened by the prompt, and its use": (
        "def f(): 1\n```\nUse it:\n```python\nprint(f())\n```",
        ("f",),
        "def f(): 1\n",
        "whole",
    ),
    "a body, opened by the prompt": ("    return 1\n```\nIt is one.", ("f",), "    return 1\n", "whole"),
    "an import before a block": ("import re\n\n```\ndef f(): 1\n", ("f",), "def f(): 1\n", "block"),
    "a program before its output": ("def f(): 1\n\nOutput:\n```\n1\n```\n", ("f",), "def f(): 1\n", "whole"),
    "a program before its use": (
        "Here it is:\n\ndef f(): 1\n\nUse it so:\n```python\nf()\n```",
        ("f",),
        "def f(): 1\n",
        "block",
    ),
    "never closed, and prose": ("```python\nx = 1\n\nIt sets a variable.", (), "x = 1\n", "block"),
    "a fence in a body": ("def f():\n    x = 1\n```\n    return x\n", ("f",), "    return x\n", "block"),
    "closed, with prose in it": ("```\nx = 1\nThat sets it.\n```", (), "x = 1\nThat sets it.\n", "block"),
    "a mark at the end of a line": ("```\nx = '```\ny'\n```\n", (), "x = '```\ny'\n", "block"),
}


MARKED = {
    "answer": ("<answer>\nx = 1\n</answer>", (), "x = 1\n", "block"),
    "answer, in its lines": ("<answer>x = 1\ny = 2</answer>", (), "x = 1\ny = 2\n", "block"),
    "answer, with prose": ("<answer>\nHere you go:\nx = 1\n</answer>", (), "x = 1\n", "block"),
    "answer, never closed": ("It is simple.\n<answer>\nx = 1\n", (), "x = 1\n", "block"),
    "answer, opened by the prompt": ("x = 1\n</answer>", (), "x = 1\n", "whole"),
    "answer, behind a draft": (
        "```python\ndef f(): 1\n```\n<answer>\ndef f(): 2\n</answer>",
        ("f",),
        "def f(): 2\n",
        "block",
    ),
    "answer, in words": (
        "```python\ndef f(): 1\n```\n<answer>The function above.</answer>",
        ("f",),
        "def f(): 1\n",
        "block",
    ),
    "another tag": ('<code lang="py">\nx = 1\n</code>', (), "x = 1\n", "block"),
    "few shots": ("[BEGIN]\nx = 1\n[DONE]", (), "x = 1\n", "block"),
    "few shots, and the next": ("x = 1\n[DONE]\n\nNext task:\n[BEGIN]\ny = 2\n[DONE]", (), "x = 1\n", "whole"),
    "Python": ("[PYTHON]\nx = 1\n[/PYTHON]", (), "x = 1\n", "block"),
    "a list of one name": ("END = 1\n[END] = [2]\n", (), "END = 1\n[END] = [2]\n", "whole"),
    "a page in a text": ('p = """\n<p>\n</p>\n"""\n', (), 'p = """\n<p>\n</p>\n"""\n', "whole"),
}
PROSE = {
    "before": ("Here is the function:\n\ndef f(): 1\n", ("f",), "def f(): 1\n", "block"),
    "behind": ("def f(): 1\n\nThis returns one.", ("f",), "def f(): 1\n", "whole"),
    "around": ("Sure! Here's how:\nx = 1\nTime complexity: O(1), it's fast.", (), "x = 1\n", "block"),
    "a heading": ("**Solution:**\n\nx = 1\n\n**Why**\n- it sets a variable\n", (), "x = 1\n", "block"),
    "a word": ("Solution\n\nx = 1\n\nDone.\n", (), "x = 1\n", "block"),
    "lines of Windows": ("Here is it:\r\n\r\nx = 1\r\n\r\nThat is all.\r\n", (), "x = 1\n", "block"),
    "thanks": ("x = 1\n\nUser: Thanks!\nAssistant: You are welcome.\n\nx = 2\n", (), "x = 1\n", "whole"),
    "in small letters": ("here is the code:\n\nx = 1\n", (), "x = 1\n", "block"),
    "in Russian": ("\u0412\u043e\u0442 \u043a\u043e\u0434:\nx = 1\n", (), "x = 1\n", "block"),
    "in Chinese": ("\u4ee5\u4e0b\u662f\u4ee3\u7801\uff1a\nx = 1\n", (), "x = 1\n", "block"),
    "an indented program": ("Here is the code:\n\n    def f():\n        1\n", ("f",), "def f():\n    1\n", "block"),
    "a sentence in a text": ('x = """\nThis is it.\n"""\n', (), 'x = """\nThis is it.\n"""\n', "whole"),
    "two programs": ("def f(): 1\n\nOr even shorter:\n\ndef f(): 2\n", ("f",), "def f(): 2\n", "block"),
    "no code": ("I cannot do that.", ("f",), "I cannot do that.", "whole"),
}
FAULTY = {
    "a misspelt word": "def f(): 1\nretrun x",
    "Python 2": "def f(): 1\nprint f()",
    "a bracket": "def f(): 1\nprint(f()))",
    "a bracket, and prose": "def f(): return (1\n\nThis returns one.",
    "a capital": "def f(): 1\nElse:\n    pass",
    "a capital without a block": "def f(): 1\nElse:\n",
    "a class with a capital": "Class A:\n    def f(): 1\n",
    "another language": "let x = 5\ndef f(): 1\n",
    "a dot": "def f(): 1\nNode.next.\n",
    "a name": "def f(): 1\nNode\n",
    "a command": "!pip install numpy\ndef f(): 1\n",
    "a sentence in a body": "def f():\n    This returns one.\n    return 1\n",
    "a sentence for a body": "def f():\nThis returns one.\n    return 1\n",
    "a mark in a body": "def f():\n    x = 1\n</answer>\n    return x\n",
    "quotes of a printer": "\u201cOne.\u201d\ndef f(): 1\n",
}
THOUGHT = {
    "a draft": ("<think>\n```python\nx = 1\n```\n</think>\n```python\nx = 2\n```", "x = 2"),
    "a draft alone": ("<think>\n```python\nx = 1\n```\nor not", ""),
    "a draft that the prompt opened": ("```python\nx = 1\n```\n</think>\nI cannot.", "I cannot."),
    "a draft in other tags": ("[THINK]\nx = 1\n[/THINK]\nx = 2\n", "x = 2"),
    "doubts behind the program": ("x = 1\n<think>\nx = 2\n", "x = 1"),
    "a tag in a text": ("s.split('</think>')\nt = \"<think>\"\n", "s.split('</think>')\nt = \"<think>\""),
    "a tag in a comment": ("# without <think>\nx = 1\n", "# without <think>\nx = 1"),
    "a tag in a long text": ('p = """\n<think>\n"""\nx = 1', 'p = """\n<think>\n"""\nx = 1'),
    "a tag in a long text of a block": ('Here:\n```\np = """<think>"""\n```', 'p = """<think>"""'),
}
TURNS = {
    "the end of a message": ("x = 1\n<|im_end|>", "x = 1"),
    "the end of a line": ("x = 1<|endoftext|>", "x = 1"),
    "the end of a block": ("```python\nx = 1\n```<|eot_id|>", "x = 1"),
    "an old end": ("x = 1\n</s>", "x = 1"),
    "another message": ("x = 1\n<|im_end|>\n<|im_start|>user\nAgain.<|im_end|>\nx = 2", "x = 1"),
    "the head of a message": ("<|im_start|>assistant\nx = 1\n", "x = 1"),
    "another question": ("x = 1\n\nQuestion: What is next?\n\nx = 2", "x = 1"),
    "another question behind a block": ("```\nx = 1\n```\nQ: And now?\n```\nx = 2\n```", "x = 1"),
    "another instruction": ("x = 1\n\n### Instruction:\nWrite more.\n\nx = 2", "x = 1"),
    "a question before the program": ("Question: What is it?\nAnswer:\n```\nx = 1\n```", "x = 1"),
    "a variable": ("Q: int = 1\nx = Q", "Q: int = 1\nx = Q"),
    "a token in a text": ("x = '<|im_end|>'\ny = 2", "x = '<|im_end|>'\ny = 2"),
    "a token in a comment": ("# at <|im_end|>\ny = 2", "# at <|im_end|>\ny = 2"),
    "a token in a long text": ('x = """\n<|im_end|>\n"""\ny = 2', 'x = """\n<|im_end|>\n"""\ny = 2'),
    "comparisons": ("if a<s>b: pass", "if a<s>b: pass"),
}


@rows("name", CASES)
def test_the_program_is_found(name: str):
    """A block that defines what is wanted, else the last, else all of it."""
    response, wanted, program, how = CASES[name]

    assert program_of(response, wanted) == (program, how)


@rows("name", MARKED)
def test_marks_stand_around_a_program(name: str):
    """Tags, and the marks of prompts with examples, on lines that begin with them."""
    response, wanted, program, how = MARKED[name]

    assert program_of(response, wanted) == (program, how)


@rows("name", PROSE)
def test_sentences_are_no_part_of_a_program(name: str):
    """Lines that no Python can have, outside of brackets and texts."""
    response, wanted, program, how = PROSE[name]

    assert program_of(response, wanted) == (program, how)


@rows("name", FAULTY)
def test_a_faulty_line_stays_in_its_program(name: str):
    """A program must not become right by what is left out of it."""
    assert program_of(FAULTY[name], ("f",)) == (FAULTY[name], "whole")


@rows("name", THOUGHT)
def test_reasoning_has_no_program(name: str):
    """Tags in the texts and comments of a program are its own."""
    response, program = THOUGHT[name]

    assert program_of(response)[0].strip() == program


@rows("name", TURNS)
def test_an_answer_ends_where_another_turn_begins(name: str):
    """At a special token of a model, or at another question; not in the texts and comments of a program."""
    response, program = TURNS[name]

    assert program_of(response)[0].strip() == program


@given(st.text("`~ \npythondef:=", max_size=80), st.lists(st.text("f.(", min_size=1, max_size=3), max_size=2))
def test_the_program_is_a_part_of_any_response(response: str, wanted: list[str]):
    """Nothing is made up, and nothing fails."""
    program, how = program_of(response, wanted)

    assert set(program.replace("\n", "")) <= set(response)
    assert all(line in response for line in program.split("\n"))
    assert how in ("block", "whole")

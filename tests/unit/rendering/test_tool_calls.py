"""Calls of tools in the text of answers, by the family of the chat template."""

from __future__ import annotations

import json
from typing import Any

from crucible_bridge.types import ToolSpec
from crucible_worker.rendering.tool_calls import MAX_CALL_CHARS, MAX_CALLS, form_of_template, parse_calls
from tests.tables import rows

SCHEMA = {
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"type": ["string", "null"]}}
}
TOOLS = (ToolSpec(name="weather", parameters=json.dumps(SCHEMA)), ToolSpec(name="f"))
PARIS = ("weather", {"city": "Paris"}, "")
BEGIN, END = "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"
ONE, ONE_END, SEP = (
    "<\uff5ctool\u2581call\u2581begin\uff5c>",
    "<\uff5ctool\u2581call\u2581end\uff5c>",
    "<\uff5ctool\u2581sep\uff5c>",
)
JSON = '{"name": "weather", "arguments": {"city": "Paris"}}'
PARAMETERS = '{"name": "weather", "parameters": {"city": "Paris"}}'

XML_A = "<parameter=a>1</parameter>"
GLM_A = "<arg_key>a</arg_key><arg_value>1</arg_value>"


def calls_of(text: str, form: str) -> list[tuple[str, Any, str]]:
    """The calls of a text, with their arguments as values."""
    return [(call.name, json.loads(call.arguments), call.id) for call in parse_calls(text, form, TOOLS).calls]


@rows(
    ("form", "text", "kept", "calls"),
    [
        ("tagged", f"Let me see.\n<tool_call>\n{JSON}\n</tool_call>", "Let me see.", [PARIS]),
        ("tagged", f"<tool_call>{JSON}</tool_call>\n<tool_call>{PARAMETERS}</tool_call>", "", [PARIS, PARIS]),
        ("tagged", f"<tool_call>[{JSON}, {JSON}]", "", [PARIS, PARIS]),
        ("tagged", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("f", {"a": 1}, "")]),
        ("tagged", '<tool_call>{"name": "f"}</tool_call> done', "done", [("f", {}, "")]),
        (
            "tagged",
            "<tool_call>\n<function=weather>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
            '<parameter=other>\n["a"]\n</parameter>\n</function>\n</tool_call>',
            "",
            [("weather", {"city": "12", "days": 3, "other": ["a"]}, "")],
        ),
        (
            "tagged",
            "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>",
            "",
            [("weather", {"city": "Paris", "days": 2}, "")],
        ),
        (
            "tagged",
            "<tool_call><function=weather><parameter=city>a</parameter></function>\n"
            "<function=f><parameter=b>2</parameter></function></tool_call>",
            "",
            [("weather", {"city": "a"}, ""), ("f", {"b": 2}, "")],
        ),
        ("tagged", "<tool_call><function=f></function></tool_call>", "", [("f", {}, "")]),
        ("tagged", "<tool_call><function=f><parameter=b>2</parameter></tool_call>", "", [("f", {"b": 2}, "")]),
        ("tagged", "<tool_call>weather\n</tool_call>", "", [("weather", {}, "")]),
        ("granite", f"<|tool_call|>[{JSON}]", "", [PARIS]),
        ("granite", f"<|tool_call|>[{JSON}]<|/tool_call|>", "", [PARIS]),
        (
            "command",
            '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "Paris"}}]'
            "<|END_ACTION|>",
            "",
            [("weather", {"city": "Paris"}, "0")],
        ),
        ("internlm", f"So:<|action_start|><|plugin|>{PARAMETERS}<|action_end|>", "So:", [PARIS]),
        ("mistral", f'Sure.[TOOL_CALLS] [{JSON[:-1]}, "id": "a1"}}]', "Sure.", [("weather", {"city": "Paris"}, "a1")]),
        ("mistral", '[TOOL_CALLS]weather{"city": "Paris"}', "", [PARIS]),
        (
            "mistral",
            '[TOOL_CALLS]weather[ARGS]{"city": "Paris"}[TOOL_CALLS]weather[CALL_ID]b2[ARGS]{"days": 1}',
            "",
            [PARIS, ("weather", {"days": 1}, "b2")],
        ),
        ("llama", PARAMETERS, "", [PARIS]),
        ("llama", f"<|python_tag|>{PARAMETERS}; {PARAMETERS}", "", [PARIS, PARIS]),
        ("llama", '{"type": "function", "name": "weather", "parameters": {"city": "Paris"}}', "", [PARIS]),
        ("llama", '<|python_tag|>search.call(query="a)b")', "", [("search", {"query": "a)b"}, "")]),
        (
            "pythonic",
            '[weather(city="Paris"), a.b(n=-1, on=true, at=None, l=[1, "x"], d={"k": 2.5})]',
            "",
            [PARIS, ("a.b", {"n": -1, "on": True, "at": None, "l": [1, "x"], "d": {"k": 2.5}}, "")],
        ),
        ("pythonic", '<|python_start|>[weather(city="Paris")]<|python_end|>', "", [PARIS]),
        ("pythonic", 'Hm.<|python_start|>[weather(city="Paris")]<|python_end|>', "Hm.", [PARIS]),
        ("pythonic", PARAMETERS, "", [PARIS]),
        ("pythonic", f"<|python_start|>{PARAMETERS}<|python_end|>", "", [PARIS]),
        ("llama", f"<|python_start|>{PARAMETERS}<|python_end|>", "", [PARIS]),
        ("llama", '<|python_tag|>{"name": "other", "parameters": {}}', "", [("other", {}, "")]),
        ("pythonic", "<|python_start|>[other(a=1)]<|python_end|>", "", [("other", {"a": 1}, "")]),
        ("llama", '{"type": "function", "function": {"name": "f", "parameters": {}}}', "", [("f", {}, "")]),
        (
            "deepseek",
            f'Hm.{BEGIN}{ONE}function{SEP}weather\n```json\n{{"city": "Paris"}}\n```{ONE_END}{END}',
            "Hm.",
            [PARIS],
        ),
        ("deepseek", f'{BEGIN}{ONE}weather{SEP}{{"city": "Paris"}}{ONE_END}{END}', "", [PARIS]),
        (
            "kimi",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
            '{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>',
            "",
            [("weather", {"city": "Paris"}, "functions.weather:0")],
        ),
        *(
            (
                "kimi",
                f"<|tool_call_begin|>{given}<|tool_call_argument_begin|>{{}}<|tool_call_end|>",
                "",
                [(name, {}, given)],
            )
            for given, name in (
                ("functions.weather", "weather"),
                ("weather", "weather"),
                ("weather:12", "weather"),
                ("functions.a:b", "a:b"),
            )
        ),
    ],
)
def test_each_family_has_its_form(form: str, text: str, kept: str, calls: list[Any]) -> None:
    """The calls come in order, with their arguments as JSON; the text is what stands around them."""
    parsed = parse_calls(text, form, TOOLS)

    assert calls_of(text, form) == calls
    assert (parsed.text, parsed.unparsed) == (kept, ())


@rows(
    ("form", "text"),
    [
        ("", "It is sunny."),
        ("mistral", JSON),
        ("llama", '{"answer": 4}'),
        ("llama", "{a} is no call"),
        ("llama", '{"name": "Paris", "population": 2100000}'),
        ("llama", '{"name": "Paris", "population": '),
        ("llama", '{"type": "object", "properties": {}}'),
        ("llama", '{"type": "object", "properties": {"name": "weather"}}'),
        ("llama", '{"name": "Paris", "parameters": {"name": "weather"}}'),
        ("pythonic", '{"name": "Paris", "population": 2100000}'),
        ("pythonic", "[see(above)] for details"),
        ("pythonic", "[other(a=1)]"),
        ("pythonic", "[1, 2] is a list"),
        ("pythonic", "see f(a=1)"),
        ("deepseek", "tool"),
        ("harmony", "It is sunny."),
    ],
)
def test_a_text_without_the_marks_of_a_call_has_none(form: str, text: str) -> None:
    """It stays as it is."""
    parsed = parse_calls(text, form, TOOLS)

    assert (parsed.text, parsed.calls, parsed.unparsed) == (text, (), ())


@rows(
    ("form", "text"),
    [
        ("llama", PARAMETERS),
        ("llama", '{"name": "weather", "parameters": {"ci'),
        ("pythonic", PARAMETERS),
        ("pythonic", '[weather(city="Paris")]'),
    ],
)
def test_without_tools_a_text_without_marks_is_text(form: str, text: str) -> None:
    """Where it is not known whether a model was shown tools, an answer in JSON or in brackets stays as it is."""
    parsed = parse_calls(text, form)

    assert (parsed.text, parsed.calls, parsed.unparsed) == (text, (), ())


@rows(
    ("form", "text", "error"),
    [
        ("tagged", "<tool_call>{", "is not closed"),
        ("tagged", "<tool_call>{</tool_call>", "is not JSON: "),
        ("tagged", "<tool_call>1</tool_call>", "has no name of a tool"),
        ("tagged", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>', "has arguments that are no object"),
        ("tagged", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', "is not JSON: NaN is no number"),
        ("tagged", "<tool_call>" + "[" * 100_000 + "</tool_call>", "is not JSON: "),
        ("tagged", "<tool_call>{" + " " * MAX_CALL_CHARS + "}</tool_call>", "at most 262,144 are parsed"),
        (
            "tagged",
            "<tool_call><function=f><parameter=a>1</function></tool_call>",
            "has an argument that is not closed",
        ),
        ("tagged", "<tool_call><function=f>{a: 1}</function></tool_call>", "has text that is no argument: '{a: 1}<"),
        ("tagged", f"<tool_call><function=f>{XML_A} and {XML_A}</function></tool_call>", "that is no argument: 'and <"),
        ("tagged", f"<tool_call><function=>{XML_A}</function></tool_call>", "has no name of a tool"),
        ("tagged", f"<tool_call><function=f>{XML_A}{XML_A}</function></tool_call>", "has an argument twice: 'a'"),
        ("tagged", f"<tool_call>f please {GLM_A}</tool_call>", "has text that is no argument: 'please <arg_key>"),
        ("tagged", f"<tool_call>f{GLM_A} please</tool_call>", "has text that is no argument: 'please'"),
        ("tagged", f"<tool_call>f{GLM_A}{GLM_A}</tool_call>", "has an argument twice: 'a'"),
        ("tagged", '<tool_call>{"name": "f", "arguments": {"a": 1, "a": 2}}</tool_call>', "the key 'a' comes twice"),
        ("mistral", '[TOOL_CALLS]f{"a": {"b": 1, "b": 1}}', "the key 'b' comes twice"),
        ("pythonic", "[f(a=1, a=2)]", "has an argument twice: 'a'"),
        ("pythonic", '[f(a={"b": 1, "b": 2})]', "the key 'b' comes twice"),
        ("mistral", '[TOOL_CALLS]weather[ARGS]{"city": ', "is not JSON: "),
        ("mistral", '[TOOL_CALLS][{"name": ', "is not JSON: "),
        ("mistral", "[TOOL_CALLS]", "has no name of a tool"),
        ("llama", '{"name": "weather", "parameters": {"ci', "is not JSON: "),
        ("llama", "<|python_tag|>print(1)", "is not JSON: "),
        ("pythonic", '[weather("Paris")]', "has arguments without names"),
        ("pythonic", "[weather(city=open('x'))]", "has an argument that is no value: Call"),
        ("pythonic", "[weather(city=10**10**10)]", "has an argument that is no value: BinOp"),
        ("pythonic", "[weather(city=", "is no call in Python: "),
        ("pythonic", "[f(a=" + "-" * 16_000 + "1)]", "is no call in Python: "),
        ("pythonic", "[f(a=1)" + " " * 16_384, "at most 16,384 are parsed"),
        ("deepseek", f"{BEGIN}{ONE}weather{SEP}{{}}", "is not closed"),
        ("kimi", "<|tool_call_begin|>functions.f:0<|tool_call_end|>", "has no arguments after a name"),
        ("harmony", "to=functions.f <|message|>{}", "templates have no parser: use the renderer tinker:gpt_oss"),
    ],
)
def test_a_call_that_cannot_be_parsed_is_kept_with_its_reason(form: str, text: str, error: str) -> None:
    """It is neither lost nor an error of the answer, whatever a model writes."""
    parsed = parse_calls(text, form, TOOLS)

    assert parsed.calls == ()
    assert error in parsed.unparsed[-1].error
    assert parsed.unparsed[-1].text.strip()


@rows(
    ("form", "text"),
    [
        ("tagged", f"<tool_call>{JSON}</tool_call>" * 300),
        ("mistral", "[TOOL_CALLS]f{}" * 300),
        ("llama", f"{PARAMETERS};" * 300),
        ("pythonic", f"[{', '.join(['f(a=1)'] * 300)}]"),
        ("deepseek", BEGIN + f"{ONE}f{SEP}{{}}{ONE_END}" * 300),
    ],
)
def test_the_number_of_calls_is_bounded(form: str, text: str) -> None:
    """The first ones are parsed, and what follows says so."""
    parsed = parse_calls(text, form, TOOLS)

    assert len(parsed.calls) == MAX_CALLS
    assert [call.error for call in parsed.unparsed] == ["comes after 100 calls"]


def test_what_follows_a_call_within_its_tag_is_not_lost() -> None:
    """The calls before it are parsed, and the rest is kept with its reason."""
    parsed = parse_calls(f"<tool_call><function=f>{XML_A}</function> so</tool_call>", "tagged")

    assert [(call.name, call.arguments) for call in parsed.calls] == [("f", '{"a": 1}')]
    assert [call.error for call in parsed.unparsed] == ["has no name of a tool"]


@rows(
    ("form", "opening", "closing"),
    [("tagged", "<tool_call>", "</tool_call>"), ("granite", "<|tool_call|>", ""), ("mistral", "[TOOL_CALLS]", "")],
)
def test_a_list_that_holds_no_calls_is_kept_once(form: str, opening: str, closing: str) -> None:
    """With the first of its reasons, however many of its elements are wrong; those that are calls are parsed."""
    listed = f'{opening}[{{"name": 1}}, {JSON}{", {}" * 200}, {JSON}]{closing}'
    parsed = parse_calls(listed * 2, form) if closing else parse_calls(listed, form)

    assert [call.name for call in parsed.calls] == ["weather"] * (4 if closing else 2)
    assert [call.text for call in parsed.unparsed] == [listed] * (2 if closing else 1)


@rows(
    ("form", "text", "error"),
    [
        ("tagged", '<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>', "1e999 is too large a number"),
        ("mistral", '[TOOL_CALLS]f{"a": [-1e999]}', "-1e999 is too large a number"),
        ("llama", '<|python_tag|>{"name": "f", "parameters": {"a": 1e999}}', "1e999 is too large a number"),
        ("llama", "<|python_tag|>f.call(a=1e999)", "has arguments that are no JSON: "),
        ("pythonic", "[f(a=1e999)]", "has arguments that are no JSON: "),
        ("pythonic", "[f(a=[-1e999])]", "has arguments that are no JSON: "),
    ],
)
def test_arguments_are_numbers_of_json(form: str, text: str, error: str) -> None:
    """An infinite one is none, and no reader of JSON would take it."""
    parsed = parse_calls(text, form, TOOLS)

    assert parsed.calls == ()
    assert error in parsed.unparsed[0].error


@rows("form", ["tagged", "mistral", "llama", "deepseek", "kimi"])
def test_arguments_of_every_depth_are_parsed_or_reported(form: str) -> None:
    """What can be read, and is too deep to be written, is an error of the call as well."""
    for depth in range(900, 1_010):
        value = f'{{"a": {"[" * depth}{"]" * depth}}}'
        text = {
            "tagged": f'<tool_call>{{"name": "f", "arguments": {value}}}</tool_call>',
            "mistral": f"[TOOL_CALLS]f{value}",
            "llama": f'<|python_tag|>{{"name": "f", "parameters": {value}}}',
            "deepseek": f"{ONE}f{SEP}{value}{ONE_END}",
            "kimi": f"<|tool_call_begin|>f<|tool_call_argument_begin|>{value}<|tool_call_end|>",
        }[form]
        parsed = parse_calls(text, form, TOOLS)
        assert len(parsed.calls) + len(parsed.unparsed) == 1


def test_calls_in_python_are_told_apart_by_their_bytes() -> None:
    """Also behind text that is not ASCII, and over several lines."""
    parsed = parse_calls(
        '[weather(city="\u00e9\U0001f600"), "\u00e9\u00e9",\r\n weather("\u00fc"),\n1]', "pythonic", TOOLS
    )

    assert [call.text for call in parsed.unparsed] == ['"\u00e9\u00e9"', 'weather("\u00fc")', "1"]


@rows(
    ("schema", "text", "value"),
    [
        ({"type": ["string", "null"]}, "12345", "12345"),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": "string"}, "null", "null"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "true", "true"),
        ({"oneOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"type": "null"}]}, "null", None),
        ({"enum": ["1", "2", None]}, "1", "1"),
        ({"enum": ["1", "2", None]}, "null", None),
        ({"const": "1"}, "1", "1"),
        ({"$ref": "#/$defs/Zip"}, "12345", "12345"),
        ({"allOf": [{"$ref": "#/$defs/Zip"}]}, "12345", "12345"),
        ({"$ref": "#/$defs/Loop"}, "12345", 12345),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "12345", 12345),
        ({"type": ["boolean", 1]}, "true", True),
        ({}, "null", None),
        (True, "1", 1),
    ],
)
def test_an_argument_is_text_where_its_schema_allows_text(schema: Any, text: str, value: Any) -> None:
    """Forms with tags have no types: a number in them is a number only of an argument that may not be text."""
    defined = {"Zip": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}}
    tool = ToolSpec(name="f", parameters=json.dumps({"properties": {"zip": schema}, "$defs": defined}))
    for inner in (
        f"<function=f><parameter=zip>{text}</parameter></function>",
        f"f<arg_key>zip</arg_key><arg_value>{text}</arg_value>",
    ):
        (call,) = parse_calls(f"<tool_call>{inner}</tool_call>", "tagged", [tool]).calls
        assert json.loads(call.arguments) == {"zip": value}


@rows(
    ("template", "form"),
    [
        ("{% for t in tools %}<tool_call>", "tagged"),
        ("[AVAILABLE_TOOLS] ... [TOOL_CALLS] ...", "mistral"),
        ('<|python_tag|> {"name": function name, "parameters": dictionary of argument name and its value}', "llama"),
        ("<|python_start|> [func_name1(params_name1=params_value1)]", "pythonic"),
        (f"{BEGIN} <tool_call>", "deepseek"),
        ("<|tool_calls_section_begin|>", "kimi"),
        ("<|channel|>commentary to=functions.x", "harmony"),
        ({"default": "x", "tool_use": "<|START_ACTION|>"}, "command"),
        ("nothing", "tagged"),
        (None, "tagged"),
    ],
)
def test_a_template_shows_the_form_of_its_calls(template: object, form: str) -> None:
    """By the marks that it writes around the calls of earlier turns."""
    assert form_of_template(template) == form

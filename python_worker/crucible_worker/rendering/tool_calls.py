"""Calls of tools in the text of an answer, by the family of the model's chat template.

    <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>                     tagged: Qwen, Hermes
    <tool_call><function=add><parameter=a>1</parameter></function></tool_call>        likewise: Qwen3-Coder, Nemotron
    <tool_call>add<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>            likewise: GLM
    <|tool_call|>[{"name": "add", "arguments": {"a": 1}}]                             likewise: Granite, Phi, Command R
    [TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]                              mistral
    [TOOL_CALLS]add[ARGS]{"a": 1}                                                     likewise, its later models
    {"name": "add", "parameters": {"a": 1}}; {...}                                    llama, after <|python_tag|> or not
    [add(a=1), add(a=2)]                                                              pythonic: Llama 3.2 and 4
    <begin>add<sep>{"a": 1}<end>                                                      parted: DeepSeek, Kimi

Parsing is bounded and takes linear time. What has the marks of a call, and cannot be parsed, is kept with its reason.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from crucible_bridge.types import ToolCall, ToolSpec, UnparsedToolCall

__all__ = ["CALL_MARKS", "MAX_CALLS", "MAX_CALL_CHARS", "ParsedCalls", "form_of_template", "parse_calls"]

MAX_CALL_CHARS = 256 * 1024
"""Of a call of a tool; the worst ones take 0.2 s, most of it in a parser that lets few other threads run."""
MAX_CALLS = 100
"""Calls of one answer that are parsed."""
_MAX_PYTHONIC_CHARS = 16 * 1024
"""Of an answer in Python's syntax, whose parser is slower."""
_MAX_ERROR_CHARS = 200
_MAX_SCHEMAS = 200
"""Of one argument, that are searched for its types."""
_MAX_SHOWN_CHARS = 60
"""Of a text that an error quotes."""

_TAGS = {
    "tagged": ("<tool_call>", "</tool_call>"),
    "granite": ("<|tool_call|>", "<|/tool_call|>"),
    "command": ("<|START_ACTION|>", "<|END_ACTION|>"),
    "internlm": ("<|action_start|><|plugin|>", "<|action_end|>"),
}
_MISTRAL, _ARGS, _CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
_PYTHON_TAGS = ("<|python_tag|>", "<|python_start|>", "<|python_end|>")
# The marks around all calls, around each, and between a name and its arguments.
_PARTED = {
    "deepseek": (
        ("<\uff5ctool\u2581calls\u2581begin\uff5c>", "<\uff5ctool\u2581calls\u2581end\uff5c>"),
        ("<\uff5ctool\u2581call\u2581begin\uff5c>", "<\uff5ctool\u2581call\u2581end\uff5c>"),
        "<\uff5ctool\u2581sep\uff5c>",
    ),
    "kimi": (
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_call_begin|>", "<|tool_call_end|>"),
        "<|tool_call_argument_begin|>",
    ),
}
CALL_MARKS = frozenset(
    {
        *(tag for tags in _TAGS.values() for tag in tags),
        *("<|action_start|>", "<|plugin|>"),
        *(_MISTRAL, _ARGS, _CALL_ID),
        *_PYTHON_TAGS,
        *(tag for around, each, between in _PARTED.values() for tag in (*around, *each, between)),
    }
)
"""Marks that some tokenizers have as special tokens: without them, the text of generated tokens has no calls."""

_BY_TEMPLATE = (
    ("<|tool_calls_section_begin|>", "kimi"),
    ("tool\u2581calls\u2581begin", "deepseek"),
    ("<|START_ACTION|>", "command"),
    ("<|action_start|>", "internlm"),
    ("to=functions.", "harmony"),
    ("[TOOL_CALLS]", "mistral"),
    ("<tool_call>", "tagged"),
    ("<|tool_call|>", "granite"),
    ("[func_name1(", "pythonic"),
    ("<|python_tag|>", "llama"),
    ('"parameters": dictionary of argument name', "llama"),
)
"""What a template contains, and the form of its calls; the first that is there counts."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParsedCalls:
    """An answer, separated."""

    text: str
    """Its text without the calls; unchanged if there are none."""
    calls: tuple[ToolCall, ...] = ()
    """Its calls, in order."""
    unparsed: tuple[UnparsedToolCall, ...] = ()
    """Those that cannot be parsed."""


def form_of_template(template: object) -> str:
    """The form in which a model of this chat template writes calls: "tagged" if the template shows no other one."""
    texts = template.values() if isinstance(template, Mapping) else (template,)
    text = "\n".join(each for each in texts if isinstance(each, str))
    return next((form for mark, form in _BY_TEMPLATE if mark in text), "tagged")


def parse_calls(text: str, form: str = "", tools: Sequence[ToolSpec] = ()) -> ParsedCalls:
    """Separate calls of tools from the text of an answer; in linear time.

    Args:
        text: the answer without its reasoning, and without what ends it.
        form: as of `form_of_template`; "tagged" if empty.
        tools: those that the model was shown: some forms have no types, which the schemas say. In forms that need no
            mark, a text without one is a call only if it names one of them.
    """
    found = _FORMS.get(form or "tagged", _tagged)(text, form, tools)
    if found is None:
        return ParsedCalls(text=text)
    kept, pieces = found
    calls: list[ToolCall] = []
    unparsed: list[UnparsedToolCall] = []
    refused = None
    for piece, parsed in pieces:
        if piece is refused and isinstance(parsed, str):  # a further element of a list, which is kept whole
            continue
        if len(calls) + len(unparsed) >= MAX_CALLS:
            last = UnparsedToolCall(text=piece[:MAX_CALL_CHARS], error=f"comes after {MAX_CALLS} calls")
            return ParsedCalls(text=kept, calls=tuple(calls), unparsed=(*unparsed, last))
        if isinstance(parsed, ToolCall):
            calls.append(parsed)
        else:
            refused = piece
            unparsed.append(UnparsedToolCall(text=piece, error=parsed))
    return ParsedCalls(text=kept, calls=tuple(calls), unparsed=tuple(unparsed))


_Pieces = Iterator[tuple[str, ToolCall | str]]
"""Calls in order: each text, and the call, or why there is none."""
_Found = tuple[str, _Pieces] | None
"""The text without its calls, and the calls; None if there are none."""


def _tagged(text: str, form: str, tools: Sequence[ToolSpec]) -> _Found:
    opening, closing = _TAGS[form or "tagged"]
    if opening not in text:
        return None
    kept: list[str] = []
    pieces: list[tuple[str, str | None]] = []
    end = 0
    while (start := text.find(opening, end)) >= 0:
        kept.append(text[end:start])
        begin = start + len(opening)
        close = text.find(closing, begin)
        end = len(text) if close < 0 else close + len(closing)
        # Lists stand at the end of an answer, and some models do not close them.
        closed = close >= 0 or text[begin : begin + 1_000].lstrip().startswith("[")
        pieces.append((text[start:end], text[begin : end if close < 0 else close] if closed else None))
        if len(pieces) > MAX_CALLS:
            end = len(text)
            break
    kept.append(text[end:])

    def each() -> _Pieces:
        for piece, inner in pieces:
            if inner is None:
                yield piece, "is not closed"
                continue
            for parsed in _inner(inner, tools):
                yield piece, parsed

    return "".join(kept).strip(), each()


def _inner(text: str, tools: Sequence[ToolSpec]) -> Iterable[ToolCall | str]:
    """What stands between two tags: JSON of one call or several, or a form with further tags."""
    if len(text) > MAX_CALL_CHARS:
        return [_too_long(text)]
    stripped = text.strip()
    if stripped.startswith("<function="):
        return _with_tags(stripped, _XML, tools)
    if not stripped.startswith(("{", "[")) and ("<arg_key>" in stripped or any(stripped == one.name for one in tools)):
        return _with_tags(stripped, _GLM, tools)
    value = _json(text)
    if isinstance(value, _NoJson):
        return [value.error]
    return [_call_of(each) for each in value] if isinstance(value, list) and value else [_call_of(value)]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Tags:
    """The tags of a call: what has its name, what opens a value, with its name, and what closes either."""

    name: re.Pattern[str]
    opening: re.Pattern[str]
    closing: str
    end: re.Pattern[str]


_XML = _Tags(
    name=re.compile(r"\s*<function=([^>\n]{1,500})>"),
    opening=re.compile(r"\s*<parameter=([^>\n]{1,500})>\n?"),
    closing="</parameter>",
    end=re.compile(r"\s*(?:</function>\s*|\Z)"),
)
_GLM = _Tags(
    name=re.compile(r"\s*([^\s<]{1,500})"),
    opening=re.compile(r"\s*<arg_key>([^<]{1,500})</arg_key>\s{0,10}<arg_value>"),
    closing="</arg_value>",
    end=re.compile(r"\s*\Z"),
)


def _with_tags(text: str, tags: _Tags, tools: Sequence[ToolSpec]) -> Iterator[ToolCall | str]:
    """Calls whose arguments have tags, and no types: those of the schema. What follows an error is not parsed."""
    end = 0
    while end < len(text):
        if (named := tags.name.match(text, end)) is None:
            yield "has no name of a tool"
            return
        name, end = named[1].strip(), named.end()
        found = _tagged_arguments(text, end, tags, next((_types_of(tool) for tool in tools if tool.name == name), {}))
        if isinstance(found, str):
            yield found
            return
        arguments, end = found
        yield _called(name, arguments)


def _tagged_arguments(
    text: str, end: int, tags: _Tags, types: Mapping[str, frozenset[str]]
) -> tuple[dict[str, Any], int] | str:
    """The arguments from a place on, and where their call ends; else what is wrong with them."""
    arguments: dict[str, Any] = {}
    while (opening := tags.opening.match(text, end)) is not None:
        if (close := text.find(tags.closing, opening.end())) < 0:
            return "has an argument that is not closed"
        end = close + len(tags.closing)
        key, value = opening[1].strip(), text[opening.end() : close]
        if key in arguments:
            return _repeated(key)
        arguments[key] = _typed(value.removesuffix("\n") if tags is _XML else value, types.get(key, frozenset()))
    if (ended := tags.end.match(text, end)) is None:
        return f"has text that is no argument: {text[end:].strip()[:_MAX_SHOWN_CHARS]!r}"
    return arguments, ended.end()


def _repeated(key: str) -> str:
    return f"has an argument twice: {key[:_MAX_SHOWN_CHARS]!r}"


@functools.lru_cache(maxsize=64)
def _types_of(tool: ToolSpec) -> Mapping[str, frozenset[str]]:
    """The types of each argument of a tool, as its schema says."""
    schema = json.loads(tool.parameters) if tool.parameters else {}
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return {}
    return {key: frozenset(_types(each, schema)) for key, each in properties.items()}


def _types(schema: Any, root: Mapping[str, Any]) -> Iterator[str]:
    """The types that a schema allows: its own, those of its choices and values, and of what it refers to."""
    left = [schema]
    for _ in range(_MAX_SCHEMAS):
        if not left:
            return
        if not isinstance(one := left.pop(), dict):
            continue
        kind, reference = one.get("type"), one.get("$ref")
        yield from (each for each in (kind if isinstance(kind, list) else [kind]) if isinstance(each, str))
        for value in (*_list(one.get("enum")), one.get("const", ())):
            if isinstance(value, str | None):
                yield "null" if value is None else "string"
        left += (each for key in ("anyOf", "oneOf", "allOf") for each in _list(one.get(key)))
        if isinstance(reference, str) and reference.startswith("#/"):
            found: Any = root
            for step in reference[2:].split("/"):
                found = found.get(step) if isinstance(found, dict) else None
            left.append(found)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _typed(text: str, kinds: frozenset[str]) -> Any:
    """An argument: text if its schema allows it; else what it is as JSON, or text if it is none."""
    if "string" in kinds:
        return None if "null" in kinds and text.strip() == "null" else text
    value = _json(text)
    return text if isinstance(value, _NoJson) else value


def _mistral(text: str, form: str, tools: Sequence[ToolSpec]) -> _Found:
    if _MISTRAL not in text:
        return None
    kept, *segments = text.split(_MISTRAL, MAX_CALLS + 1)

    def each() -> _Pieces:
        for segment in segments:
            piece, inner = f"{_MISTRAL}{segment}", segment.strip()
            if len(inner) > MAX_CALL_CHARS:
                yield piece, _too_long(inner)
            elif inner.startswith(("[{", "{", "[ ", "[\n")) or inner == "[]":
                value = _json(inner)
                if isinstance(value, _NoJson):
                    yield piece, value.error
                    continue
                for one in value if isinstance(value, list) else [value]:
                    yield piece, _call_of(one)
            else:
                yield piece, _named(inner)

    return kept.strip(), each()


def _named(text: str) -> ToolCall | str:
    """A call of Mistral's later models: a name, perhaps an id, and the arguments."""
    head, mark, body = text.partition(_ARGS)
    if not mark:
        brace = text.find("{")
        head, body = (text, "") if brace < 0 else (text[:brace], text[brace:])
    name, _, given = head.partition(_CALL_ID)
    return _of_parts(name.strip(), body, given.strip())


_KIMI_INDEX = re.compile(r":[0-9]*$")


def _parted(text: str, form: str, tools: Sequence[ToolSpec]) -> _Found:
    (begins, ends), (opening, closing), between = _PARTED[form]
    start = min((at for at in (text.find(begins), text.find(opening)) if at >= 0), default=-1)
    if start < 0:
        return None
    last = text.find(ends, start)
    body = text[start : len(text) if last < 0 else last]
    kept = text[:start] + ("" if last < 0 else text[last + len(ends) :])

    def each() -> _Pieces:
        _, *segments = body.split(opening, MAX_CALLS + 1)
        if not segments:
            yield body, "has no call"
        for segment in segments:
            piece = f"{opening}{segment}"
            inner, closed, _ = segment.partition(closing)
            head, mark, arguments = inner.partition(between)
            if not closed:
                yield piece, "is not closed"
            elif not mark:
                yield piece, "has no arguments after a name"
            elif form == "kimi":  # functions.NAME:INDEX is its id; some have no prefix, or no index
                given = head.strip()
                yield piece, _of_parts(_KIMI_INDEX.sub("", given.removeprefix("functions.")), arguments, given)
            elif head.strip() == "function":
                name, _, fenced = arguments.partition("\n")
                fenced = fenced.strip().removeprefix("```json").removesuffix("```")
                yield piece, _of_parts(name.strip(), fenced)
            else:
                yield piece, _of_parts(head.strip(), arguments)

    return kept.strip(), each()


_LLAMA = re.compile(r'\s*\{\s*"(?:name|type|function|parameters)"\s*:')
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]{1,500})"')
_BUILTIN = re.compile(r"\s*([A-Za-z_]\w*)\.call\(")
_SEPARATOR = re.compile(r"[\s;,]*")


def _llama(text: str, form: str, tools: Sequence[ToolSpec]) -> _Found:
    kept, marked, body = _at_mark(text)
    if marked:
        body = body.rstrip().removesuffix(_PYTHON_TAGS[2])
    elif _LLAMA.match(text) is None or _first_name(text) not in {tool.name for tool in tools}:
        return None  # also JSON that an answer is
    else:
        kept, body = "", text

    def each() -> _Pieces:
        if len(body) > MAX_CALL_CHARS:
            yield body, _too_long(body)
            return
        if (builtin := _BUILTIN.match(body)) is not None:
            yield body, _python_call(f"{builtin[1]}({body[builtin.end() :].strip()}")
            return
        at = _after_separator(body, 0)
        while at < len(body):
            try:
                value, end = _DECODER.raw_decode(body, at)
            except (ValueError, RecursionError) as error:
                yield body[at:], f"is not JSON: {_shown(error)}"
                return
            yield body[at:end], _call_of(value)
            at = _after_separator(body, end)

    return kept.strip(), each()


def _at_mark(text: str) -> tuple[str, bool, str]:
    """What stands before the mark of calls, whether there is one, and what follows it; without one, all follows."""
    tag = next((tag for tag in _PYTHON_TAGS[:2] if tag in text), "")
    kept, _, body = text.partition(tag) if tag else ("", "", text)
    return kept, bool(tag), body


def _first_name(text: str) -> str:
    """The name of the tool in the first object of a text, also if that is not JSON."""
    if len(text) <= MAX_CALL_CHARS:
        with contextlib.suppress(ValueError, RecursionError):
            value, _ = _DECODER.raw_decode(text, _after_separator(text, 0))
            parsed = _call_of(value)
            name = parsed.name if isinstance(parsed, ToolCall) else isinstance(value, dict) and value.get("name")
            return name if isinstance(name, str) else ""
    found = _NAME.search(text)
    return "" if found is None else found[1]


def _after_separator(text: str, at: int) -> int:
    found = _SEPARATOR.match(text, at)
    return at if found is None else found.end()


_PYTHONIC = re.compile(r"\s*\[\s*([A-Za-z_][\w.\-]*)\s*\(")


def _pythonic(text: str, form: str, tools: Sequence[ToolSpec]) -> _Found:
    kept, marked, body = _at_mark(text)
    for tag in _PYTHON_TAGS:
        body = body.replace(tag, "")
    if (named := _PYTHONIC.match(body)) is None:
        return _llama(text, form, tools)
    if not marked and named[1] not in {tool.name for tool in tools}:
        return None  # without a mark, a text in brackets is a call only if it names a tool

    def each() -> _Pieces:
        tree = _python(body)
        if isinstance(tree, str):
            yield body, tree
        elif not isinstance(tree, ast.List):
            yield body, "is no list of calls"
        else:
            source = body.strip().encode()
            starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]  # columns are bytes
            for node in tree.elts:
                begin = starts[node.lineno - 1] + node.col_offset
                end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
                yield source[begin:end].decode(errors="replace"), _call_of_node(node)

    return kept.strip(), each()


def _python_call(text: str) -> ToolCall | str:
    tree = _python(text)
    return tree if isinstance(tree, str) else _call_of_node(tree)


def _python(text: str) -> ast.expr | str:
    if len(text) > _MAX_PYTHONIC_CHARS:
        return f"has {len(text):,} characters; at most {_MAX_PYTHONIC_CHARS:,} are parsed"
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"is no call in Python: {_shown(error)}"


def _call_of_node(node: ast.expr) -> ToolCall | str:
    if not isinstance(node, ast.Call):
        return "is no call"
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        return "has arguments without names"
    try:
        keys = [str(keyword.arg) for keyword in node.keywords]
        if (twice := next((key for key, count in Counter(keys).items() if count > 1), None)) is not None:
            return _repeated(twice)
        name = ast.unparse(node.func)
        arguments = {str(keyword.arg): _value_of(keyword.value) for keyword in node.keywords}
    except (ValueError, TypeError, RecursionError) as error:
        return f"has an argument that is no value: {_shown(error)}"
    return _called(name, arguments)


_WORDS = MappingProxyType({"true": True, "false": False, "null": None})


def _value_of(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | bool() | int() | float() | None as value):
            return value
        case ast.Name(id=name) if name in _WORDS:
            return _WORDS[name]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value_of(item) for item in items]
        case ast.Dict(keys=keys, values=values) if all(
            isinstance(key, ast.Constant) and isinstance(key.value, str) for key in keys
        ):
            return _object([(ast.literal_eval(key), _value_of(item)) for key, item in zip(keys, values) if key])
        case _:
            raise ValueError(type(node).__name__)


_HARMONY = re.compile(r"to=functions\.")


def _harmony(text: str, form: str, tools: Sequence[ToolSpec]) -> _Found:
    if _HARMONY.search(text) is None:
        return None
    cure = "use the renderer tinker:gpt_oss_no_sysprompt"
    why = f"is in the form of gpt-oss, for which chat templates have no parser: {cure}"
    return "", iter([(text, why)])


_FORMS: Mapping[str, Callable[[str, str, Sequence[ToolSpec]], _Found]] = MappingProxyType(
    {
        **dict.fromkeys(_TAGS, _tagged),
        **dict.fromkeys(_PARTED, _parted),
        "mistral": _mistral,
        "llama": _llama,
        "pythonic": _pythonic,
        "harmony": _harmony,
    }
)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:_MAX_SHOWN_CHARS]} is too large a number")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {twice[:_MAX_SHOWN_CHARS]!r} comes twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_object)


@dataclasses.dataclass(frozen=True, slots=True)
class _NoJson:
    error: str


def _json(text: str) -> Any:
    if len(text) > MAX_CALL_CHARS:
        return _NoJson(_too_long(text))
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        return _NoJson(f"is not JSON: {_shown(error)}")


def _call_of(value: Any) -> ToolCall | str:
    """A call of a JSON object; else what is wrong with it."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = {**value["function"], "id": value.get("id")}
    if not isinstance(value, dict):
        return "has no name of a tool"
    name = next((value[key] for key in ("name", "tool_name", "function") if isinstance(value.get(key), str)), None)
    if not name:
        return "has no name of a tool"
    arguments = next((value[key] for key in ("arguments", "parameters") if value.get(key) is not None), {})
    given = next((value[key] for key in ("id", "tool_call_id") if isinstance(value.get(key), str)), "")
    return _with_arguments(name, arguments, given)


def _of_parts(name: str, body: str, given: str = "") -> ToolCall | str:
    """A call of a name, and JSON of its arguments."""
    if not name or re.search(r"[\s{}\[\]]", name):
        return "has no name of a tool"
    value = _json(body)
    return value.error if isinstance(value, _NoJson) else _with_arguments(name, value, given)


def _with_arguments(name: str, arguments: Any, given: str) -> ToolCall | str:
    if isinstance(arguments, str):  # JSON in JSON
        arguments = _json(arguments)
    if not isinstance(arguments, dict):
        return "has arguments that are no object"
    return _called(name, arguments, given)


def _called(name: str, arguments: dict[str, Any], given: str = "") -> ToolCall | str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:  # infinite numbers of Python's syntax; what is nested too deep
        return f"has arguments that are no JSON: {_shown(error)}"
    return ToolCall(name=name, arguments=text, id=given)


def _too_long(text: str) -> str:
    return f"has {len(text):,} characters; at most {MAX_CALL_CHARS:,} are parsed"


def _shown(error: BaseException) -> str:
    return (str(error) or type(error).__name__)[:_MAX_ERROR_CHARS]

"""How rows become what the model gets: parts in order, examples that are never the row itself, refusals by place."""

import dataclasses

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound
from crucible_bridge.types import ChatMessage, Conversation, Dataset, Datum, FewShot, InlineDataset, Prompt, Sample
from crucible_worker.datasets.loading import LoadedDataset, load
from crucible_worker.engine.prompting import prompter_of
from crucible_worker.rendering.prompts import Prompted
from tests.tables import rows

ROW = Sample(id="r", input="1+1?", targets=("2",), metadata={"topic": "sums"})
TRAIN = tuple(Sample(id=f"t{n}", input=f"{n}+{n}?", targets=(str(2 * n),)) for n in range(1, 9))


def talk(*turns):
    """A conversation of pairs of role and content."""
    return Conversation(tuple(ChatMessage(role, content) for role, content in turns))


def turns_of(sample):
    """Pairs of role and content of a sample's input."""
    return [(message.role, message.content) for message in sample.input.messages]


class Source:
    """A source of examples, in place of a file."""

    def __init__(self, samples=TRAIN):
        self.samples = samples
        self.read: list[Dataset] = []

    async def __call__(self, dataset: Dataset) -> LoadedDataset:
        self.read.append(dataset)
        inline = dataclasses.replace(dataset, source=InlineDataset(self.samples))
        return load(inline, data_roots=(), builtins={})


async def made(prompt, samples=(ROW,), source=None, pool=None):
    """A prompt that is ready."""
    return await prompter_of(prompt, samples, read=source or Source(), pool=pool, skip_malformed=False)


def shots(count, seed=0):
    """A prompt with examples."""
    return Prompt(few_shot=FewShot(source="jsonl:train.jsonl", count=count, seed=seed))


async def test_parts_come_in_order():
    """System message, prefix, examples, the row by its template, suffix."""
    prompt = Prompt(
        system="Be brief.",
        template="{topic}: {input}",
        prefix=talk(("user", "hello"), ("assistant", "hi")),
        suffix=talk(("user", "A number.")),
        few_shot=FewShot(source="jsonl:train.jsonl", count=1),
    )
    train = (Sample(id="t", input="2+2?", targets=("4", "four"), metadata={"topic": "more"}),)
    prompter = await made(prompt, source=Source(train))

    sample = await prompter.apply(ROW)

    assert turns_of(sample) == [
        ("system", "Be brief."),
        *(("user", "hello"), ("assistant", "hi")),
        *(("user", "more: 2+2?"), ("assistant", "4")),
        *(("user", "sums: 1+1?"), ("user", "A number.")),
    ]
    assert isinstance(sample.input, Prompted)
    assert sample.input.question == "sums: 1+1?"
    assert dataclasses.replace(sample, input=ROW.input) == ROW


async def test_one_message_of_the_user_is_text():
    """A template alone leaves text, which every evaluator takes as it takes a data set's own."""
    prompter = await made(Prompt(template="Q: {input}"))
    assert (await prompter.apply(ROW)).input == "Q: 1+1?"


@rows(
    ("row", "turns", "joins"),
    [
        (talk(("user", "a")), [("system", "new"), ("user", "<a>")], True),
        (talk(("system", "own"), ("user", "a")), [("system", "new"), ("user", "<a>")], True),
        (
            talk(("user", "a"), ("assistant", "b"), ("user", "c")),
            [("system", "new"), ("user", "a"), ("assistant", "b"), ("user", "<c>")],
            False,
        ),
    ],
)
async def test_a_row_may_be_a_conversation(row, turns, joins):
    """The prompt's system message takes the place of its own, the template that of its last message."""
    sample = Sample(id="c", input=row)
    prompter = await made(Prompt(system="new", template="<{input}>"), [sample])

    found = await prompter.apply(sample)

    assert turns_of(found) == turns
    assert isinstance(found.input, Prompted) == joins, "the roles of several messages cannot be joined to a text"


@rows(
    ("targets", "where"),
    [((), "an answer that is measured"), (("2",), "the beginning of an answer")],
)
async def test_a_row_keeps_what_the_assistant_said_last(targets, where):
    """It stays the end of the prompt, and the template is that of what it answers."""
    sample = Sample(id="c", input=talk(("user", "1+1?"), ("assistant", "2")), targets=targets)
    prompt = Prompt(template="<{input}>", suffix=talk(("user", "A number.")))

    found = await (await made(prompt, [sample])).apply(sample)

    assert turns_of(found) == [("user", "<1+1?>"), ("user", "A number."), ("assistant", "2")], where
    assert not isinstance(found.input, Prompted), "the roles of several messages cannot be joined to a text"


async def test_a_row_with_its_answer_is_no_example_of_itself():
    """Also where the evaluator measures the answer, and the row still has it."""
    train = tuple(
        Sample(id=sample.id, input=talk(("user", str(sample.input)), ("assistant", sample.targets[0])))
        for sample in TRAIN
    )
    prompter = await made(shots(len(TRAIN) - 1), train, Source(train))
    for sample in train:
        turns = turns_of(await prompter.apply(sample))
        assert len(set(turns)) == len(turns) == 2 * len(TRAIN)
        assert turns[-2:] == turns_of(sample)


async def test_a_row_keeps_its_own_system_message():
    """Where the prompt has none it stays the first, before the examples."""
    sample = Sample(id="c", input=talk(("system", "own"), ("user", "a")))
    found = await (await made(shots(1), [sample])).apply(sample)
    assert [role for role, _ in turns_of(found)] == ["system", "user", "assistant", "user"]
    assert turns_of(found)[0] == ("system", "own")


async def test_the_row_itself_is_never_an_example():
    """Also where the source is the data set: another row takes its place, and all others show the same ones."""
    source = Source()
    prompter = await made(shots(3, seed=5), TRAIN, source)
    found = {sample.id: turns_of(await prompter.apply(sample)) for sample in TRAIN}

    shown = {identity: [content for role, content in turns[:-1] if role == "user"] for identity, turns in found.items()}
    for sample in TRAIN:
        assert len(set(shown[sample.id])) == 3
        assert sample.input not in shown[sample.id]
        assert found[sample.id][-1] == ("user", sample.input)
    whole = [tuple(each) for identity, each in shown.items() if TRAIN[int(identity[1:]) - 1].input not in each]
    assert len(set(whole)) > 1, "rows that are among the examples have another one for themselves"
    assert len({each for each in whole if whole.count(each) > 1}) == 1, "all others have the same"
    assert source.read == [dataclasses.replace(Dataset.of("jsonl:train.jsonl"), shuffle_seed=5)]


async def test_the_seed_says_which_rows():
    """Equal seeds draw the same; each of several draws another set at least once."""

    async def drawn(seed):
        return turns_of(await (await made(shots(2, seed))).apply(ROW))

    assert await drawn(3) == await drawn(3)
    assert len({tuple(await drawn(seed)) for seed in range(6)}) > 1


async def test_the_same_question_twice_is_one_example():
    """A source with copies of the row does not give its answer away."""
    copies = tuple(Sample(id=f"c{n}", input="1+1?", targets=("2",)) for n in range(4))
    prompter = await made(shots(2), source=Source((*copies, *TRAIN[1:3])))

    assert {content for role, content in turns_of(await prompter.apply(ROW)) if role == "user"} == {
        *("1+1?", "2+2?", "3+3?"),
    }
    assert [role for role, content in turns_of(await prompter.apply(ROW)) if content == "2"] == []


async def test_an_example_may_end_with_its_answer():
    """A conversation that the assistant ends is shown as it is, without a system message of its own."""
    train = (Sample(id="t", input=talk(("system", "s"), ("user", "q"), ("assistant", "a"))),)
    prompter = await made(shots(1), source=Source(train))
    assert turns_of(await prompter.apply(ROW)) == [("user", "q"), ("assistant", "a"), ("user", "1+1?")]


@rows(
    ("prompt", "train", "reason", "field", "told"),
    [
        (Prompt(template="{x}"), TRAIN, "TEMPLATE_FAILED", "dataset.prompt.template", "names the column 'x'"),
        (shots(9), TRAIN, "FEW_SHOT_REFUSED", "dataset.prompt.few_shot.source", "has 8 other questions"),
        (shots(8), TRAIN, "FEW_SHOT_REFUSED", "dataset.prompt.few_shot.source", "has 7 other questions"),
        (
            shots(1),
            (Sample(id="t", input="a"),),
            "FEW_SHOT_REFUSED",
            "dataset.prompt.few_shot.source",
            "has the row 't' without a target",
        ),
    ],
)
async def test_what_cannot_be_prompted_is_refused_at_its_place(prompt, train, reason, field, told):
    """Before anything starts, by the first row."""
    with pytest.raises(InvalidField, match=told) as caught:
        await made(prompt, [Sample(id="r", input="1+1?")], Source(train))
    assert (caught.value.reason, caught.value.field) == (reason, field)


@rows(
    ("source", "kind", "reason"),
    [
        ("nonsense", InvalidField, "INVALID_FIELD"),
        ("builtin:none", NotFound, "UNKNOWN_DATASET"),
        ("jsonl:train.jsonl", FailedPrecondition, "NO_DATA_ROOT"),
    ],
)
async def test_a_source_that_cannot_be_read_is_told_at_its_place(source, kind, reason):
    """Not as if it were the data set."""

    async def read(dataset):
        return load(dataset, data_roots=(), builtins={})

    with pytest.raises(kind) as caught:
        await made(Prompt(few_shot=FewShot(source=source, count=1)), source=read)
    assert (caught.value.reason, caught.value.field) == (reason, "dataset.prompt.few_shot.source")


async def test_tokens_take_no_prompt():
    """A Datum goes as it is, or not at all."""
    with pytest.raises(InvalidField, match="the row is tokens") as caught:
        await made(Prompt(system="s"), [Sample(id="d", input=Datum(model_input=[1], loss_fn_inputs={}))])
    assert caught.value.field == "dataset.prompt.template"


async def test_the_fingerprint_of_examples_is_that_of_their_content():
    """Another source with the same rows is the same; another answer is not; no examples have none."""
    same = await made(shots(2), source=Source())
    again = await made(shots(2), source=Source())
    other = await made(shots(2), source=Source(tuple(dataclasses.replace(sample, targets=("x",)) for sample in TRAIN)))
    assert same.examples_fingerprint == again.examples_fingerprint != other.examples_fingerprint
    assert len(same.examples_fingerprint) == 64
    assert (await made(Prompt(system="s"))).examples_fingerprint == ""


async def test_jinja_needs_processes():
    """Without any, the error has the way that needs none."""
    with pytest.raises(FailedPrecondition, match="write columns as") as caught:
        await made(Prompt(template="{{ input }}"))
    assert caught.value.field == "dataset.prompt.template"

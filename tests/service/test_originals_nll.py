"""tinker-cookbook's NLLEvaluators and the evaluators `nll` and `bits_per_byte`: equal, but where theirs are wrong."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, Code
from crucible_bridge.types import Datum, EvaluatorSpec, Sample, Verdict
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import asked, failing, nll, refused, rig, samples_of
from tests.service.originals_kit import CodePoints, SamplingClient, TrainingClient, originals
from tests.tables import rows

TOLERANCE = 2.0**-20
"""Relative: the originals sum in float32."""


@pytest.fixture(scope="module")
def theirs():
    """The module of the originals."""
    with originals("supervised.nll_evaluator") as (module,):
        yield module


def _datum(text: str, weights: Sequence[float]) -> Datum:
    """Text without its last token, and all but the first as targets."""
    tokens = [ord(character) for character in text]
    return Datum(
        model_input=tokens[:-1],
        loss_fn_inputs={"target_tokens": np.array(tokens[1:]), "weights": np.array(weights, np.float32)},
    )


def _theirs_of(datum: Datum) -> Any:
    import tinker

    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(datum.model_input.tokens().tolist()),
        loss_fn_inputs={key: tinker.TensorData.from_numpy(np.asarray(v)) for key, v in datum.loss_fn_inputs.items()},
    )


def _data(seed: int) -> list[Datum]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 60, 12)
    texts = ["".join(map(chr, rng.integers(97, 123, size))) for size in sizes]
    return [_datum(text, rng.choice([0.0, 0.25, 1.0], len(text) - 1).tolist()) for text in texts]


async def _measured(model: ScriptedModel, samples: Sequence[Sample], *evaluators: EvaluatorSpec) -> Any:
    """An evaluation by these, and what became of its samples."""
    async with rig(model) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=evaluators, dataset=samples))
        return evaluation, await samples_of(r.worker.bridge)


@rows("seed", [1, 2])
@rows("client", ["training", "sampling"])
async def test_equal_keys_and_values(theirs: Any, client: str, seed: int) -> None:
    """`<name>/nll` over all data, by forward passes or by log-probabilities of prompts."""
    model, data = ScriptedModel(), _data(seed)
    given = [_theirs_of(datum) for datum in data]
    if client == "training":
        with pytest.warns(DeprecationWarning, match="NLLEvaluator"):
            expected = await theirs.NLLEvaluator(given, name="test")(TrainingClient(model))
    else:
        expected = await theirs.SamplerNLLEvaluator(given, name="test")(SamplingClient(model))

    evaluation, _ = await _measured(model, [Sample(input=each) for each in data], nll("test", client=client))

    assert evaluation.metrics.values.keys() == expected.keys() == {"test/nll"}
    assert evaluation.metrics.values["test/nll"] == pytest.approx(expected["test/nll"], rel=TOLERANCE)


async def test_equal_bits_per_byte(theirs: Any) -> None:
    """`<name>/bpb` is `<name>/bits_per_byte`: of targets with their space behind text, bytes as those of UTF-8."""
    model = ScriptedModel()
    pairs = [("2+2=", " 4"), ("né à", " Besançon"), ("q:", " 日本 and so on")]
    data = [_datum(a + b, [0.0] * (len(a) - 1) + [1.0] * len(b)) for a, b in pairs]
    evaluator = theirs.SamplerNLLEvaluator([_theirs_of(each) for each in data], tokenizer=CodePoints())
    expected = await evaluator(SamplingClient(model))

    samples = [Sample(input=a, targets=(b,)) for a, b in pairs]
    bits = EvaluatorSpec(kind="bits_per_byte", name="test", options={"renderer": "raw"})
    evaluation, _ = await _measured(model, samples, nll("test", renderer="raw"), bits)

    values = evaluation.metrics.values
    assert expected.keys() == {"test/nll", "test/bpb"}
    assert values.keys() == {"test/nll", "test/bits_per_byte"}
    assert values["test/nll"] == pytest.approx(expected["test/nll"], rel=TOLERANCE)
    assert values["test/bits_per_byte"] == pytest.approx(expected["test/bpb"], rel=TOLERANCE)


async def test_a_character_that_is_cut_keeps_its_bytes(theirs: Any) -> None:
    """Where text begins within a character, theirs counts what stands for the rest of it; ours counts all of the text.

    Theirs has no token before the first, and decodes what is left: U+FFFD, three bytes for one.
    """

    @dataclasses.dataclass(kw_only=True)
    class Bytes(ScriptedModel):
        @property
        def eos_token_id(self) -> int:
            return 0

        async def encode(self, text: str) -> Sequence[int]:
            return list(text.encode())

    class ByteTokenizer(CodePoints):
        def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
            return bytes(tokens).decode(errors="replace")

    one_bit = Bytes(logprob=lambda token, position: -math.log(2))
    given = [_theirs_of(_datum("é".encode().decode("latin-1"), [1.0]))]
    expected = await theirs.SamplerNLLEvaluator(given, tokenizer=ByteTokenizer())(SamplingClient(one_bit))
    evaluation, _ = await _measured(one_bit, [Sample(input="é")], EvaluatorSpec(kind="bits_per_byte"))

    assert expected["test/bpb"] == pytest.approx(1 / 3)
    assert evaluation.metrics.values["bits_per_byte"] == pytest.approx(1.0)


async def test_weights_of_zero_are_no_number_there_and_a_reason_here(theirs: Any) -> None:
    """Nothing was selected: theirs is NaN, ours undefined."""
    data = [_datum("abc", [0.0, 0.0])]
    expected = await theirs.SamplerNLLEvaluator([_theirs_of(each) for each in data])(SamplingClient(ScriptedModel()))
    evaluation, _ = await _measured(ScriptedModel(), [Sample(input=each) for each in data], nll("test"))

    assert math.isnan(expected["test/nll"])
    assert evaluation.metrics.values == {}
    assert evaluation.metrics.undefined.keys() == {"test/nll"}


async def test_no_data_is_no_number_there_and_refused_here(theirs: Any) -> None:
    """A data set without a sample starts nothing."""
    expected = await theirs.SamplerNLLEvaluator([])(SamplingClient(ScriptedModel()))

    assert math.isnan(expected["test/nll"])
    async with rig() as r:
        await refused(
            r.evaluation.evaluate(asked(evaluators=[nll("test")], dataset=[])),
            Code.INVALID_ARGUMENT,
            "EMPTY_DATASET",
            "dataset.inline",
        )


async def test_an_impossible_token_without_weight_spoils_theirs_alone(theirs: Any) -> None:
    """-inf times 0 is NaN there; here a token of weight 0 has no part in the sum."""
    model = ScriptedModel(logprob=lambda token, position: -math.inf if token == ord("x") else -0.5)
    data = [_datum("axb", [0.0, 1.0])]
    expected = await theirs.SamplerNLLEvaluator([_theirs_of(each) for each in data])(SamplingClient(model))
    evaluation, _ = await _measured(model, [Sample(input=each) for each in data], nll("test"))

    assert math.isnan(expected["test/nll"])
    assert evaluation.metrics.values == {"test/nll": 0.5}


async def test_what_the_model_cannot_say_of_one_spoils_theirs_alone(theirs: Any) -> None:
    """A NaN of one sample is the whole result there, an error that ends all; here each is an ERROR of its own."""
    data = [_datum("ab", [1.0]), _datum("ax", [1.0]), _datum("zz", [1.0])]
    broken = ScriptedModel(logprob=lambda token, position: math.nan if token == ord("x") else -0.5)
    down = ScriptedModel(logprob=lambda token, position: -0.5, fault=failing("zz", "z"))
    evaluator = theirs.SamplerNLLEvaluator([_theirs_of(each) for each in data])

    assert math.isnan((await evaluator(SamplingClient(broken)))["test/nll"])
    with pytest.raises(BackendError, match="out of order"):
        await evaluator(SamplingClient(down))
    for model, at in ((broken, 1), (down, 2)):
        evaluation, samples = await _measured(model, [Sample(input=each) for each in data], nll("test"))
        (result,) = evaluation.results
        assert evaluation.metrics.values == {"test/nll": 0.5}
        assert (result.n, result.n_scored, result.n_errors) == (3, 2, 1)
        assert samples[at].verdict is Verdict.ERROR

"""Rewards for trainers: each is called as its trainer calls it, and graded by real processes."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib
import json
import logging
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField, Unauthenticated
from crucible_bridge.rewards import (
    Graded,
    Reward,
    Undecided,
    answer_reward,
    code_reward,
    format_reward,
    math_reward,
)
from tests import needs
from tests.cases.hostile import hostile_pairs
from tests.service.processes_kit import serving
from tests.tables import rows

BLANK_TARGET = ("4", " ")
"""A response and a target that no grader can decide."""
PROGRAM = "```python\ndef add(a, b):\n    return a + b\n```"


def hanging() -> tuple[str, str]:
    """A response and a target whose comparison is stopped at its limit of time."""
    (pair,) = (pair for pair in hostile_pairs(Path("/none")) if pair.name == "an integral")
    return pair.answer, pair.target


# Calls of trainers.


def trl(reward: Reward, completions: list[Any], **columns: Any) -> Any:
    """Call a reward as TRL's GRPOTrainer does."""
    count = len(completions)
    return reward(prompts=["?"] * count, completions=completions, completion_ids=[[1]] * count, **columns)


def test_trl_passes_texts_or_messages_and_gets_none_where_nothing_was_decided():
    """The last message of the assistant counts; a target is a text, a number or a list of right answers."""
    said = [{"role": "assistant", "content": "7?"}, {"role": "tool", "content": "9"}]
    parts = [{"role": "assistant", "content": [{"type": "text", "text": "The answer is 8."}]}]
    completions = ["The answer is 4.", [*said, {"role": "assistant", "content": "\\boxed{9}"}], parts, said, "5", "6"]

    rewards = trl(math_reward, completions, answer=["4", 9, ["1", "8"], "9", " ", None], trainer_state=None)

    assert rewards == [1.0, 1.0, 1.0, 0.0, None, None]


def test_trl_logs_counts_each_step_and_details_where_asked():
    """`log_metric` gets how many are undecided; `log_extra` a column of each detail."""
    metrics: dict[str, float] = {}
    columns: dict[str, list[str]] = {}
    response, target = hanging()

    trl(
        Reward(name="right", details=True),
        ["4", "5", response],
        solution=["4", " ", target],
        log_metric=metrics.__setitem__,
        log_extra=columns.__setitem__,
    )

    assert metrics == {"right/undecided": 2.0, "right/timeouts": 1.0, "right/errors": 0.0}
    assert columns["right/verdict"] == ["correct", "undecided", "undecided"]
    assert columns["right/extracted"][0] == "4"
    assert columns["right/reason"][1] == "the target is empty"
    assert columns.keys() == {f"right/{name}" for name in ("verdict", "method", "reason", "extracted")}


def test_verl_gets_a_number_or_a_record():
    """By name, by position as its PRIME manager passes them, and whole batches; `reward_kwargs` may change a reward."""
    reward = Reward(undecided=0.5)
    named = {"data_source": "x", "extra_info": {"index": 1}}

    assert reward(solution_str="The answer is 4.", ground_truth="4", **named) == 1.0
    assert reward("x", "The answer is 5.", "4", {"index": 1}) == 0.0
    assert reward("x", *BLANK_TARGET, None) == 0.5
    assert reward(data_sources=["x"] * 2, solution_strs=["4", "5"], ground_truths=["4", "4"], extra_infos=[{}, {}]) == [
        1.0,
        0.0,
    ]
    record = math_reward(solution_str="4", ground_truth=["4", "5"], undecided=0.0, details=True, **named)
    assert record == {
        "score": 1.0,
        "undecided": 0,
        "timeouts": 0,
        "errors": 0,
        "verdict": "correct",
        "method": "literal",
        "reason": "",
        "extracted": "4",
    }


def test_openrlhf_has_what_follows_the_prompt_graded():
    """A prompt with worked examples has answers of its own; marks of a tokenizer may stand before it."""
    prompts = ["Q: 1+1?\nThe answer is 2.\nQ: 2+3?\n"] * 2
    queries = [f"<s>{prompts[0]}The answer is 5.", f"{prompts[1]}I do not know."]

    found = Reward(undecided=0.0)(queries, prompts, ["5", "2"])

    assert [float(each) for each in found["rewards"]] == [1.0, 0.0]
    assert [float(each) for each in found["scores"]] == [1.0, 0.0]
    assert found["extra_logs"].keys() == {"undecided", "timeouts", "errors"}
    with pytest.raises(InvalidField, match="which does not have its prompt"):
        Reward(undecided=0.0)(["something else"], ["the prompt"], ["5"])


def test_areal_gets_a_number():
    """Prompt, completion and their tokens by position, the columns of the data by name."""
    assert Reward(undecided=0.0)("2+2?", "The answer is 4.", [1], [2, 3], answer="4", task="x") == 1.0


async def test_verifiers_awaits_a_number():
    """A rubric's function gets the completion, the answer, and the state, which takes the details."""
    state: dict[str, Any] = {}
    reward = Reward(undecided=0.0, details=True)
    completion = [{"role": "assistant", "content": "4"}]

    assert await reward(completion=completion, answer="4", prompt=[], state=state, info={}) == 1.0
    assert await reward(completion=completion, answer="", state=state, info={"answer": "5"}) == 0.0
    assert state["grades"]["math_reward"]["verdict"] == "incorrect"
    assert await reward(completion=completion, answer="", state=state, info={}) == 0.0
    assert state["grades"]["math_reward"]["reason"] == "the target is empty"


async def test_any_trainer_calls_with_a_response_and_a_target():
    """Blocking, also within an event loop, or awaited."""
    assert math_reward("The answer is 4.", "4") == 1.0
    assert await math_reward.score("The answer is 4.", ["3", "4"]) == 1.0
    assert math_reward(*BLANK_TARGET) is None
    with pytest.raises(TypeError, match="the call of none of TRL, verl"):
        math_reward("4")


def test_trainers_that_take_numbers_refuse_none_at_once():
    """Not at the first response that cannot be decided, hours later; and never is it 0 without a word."""
    for call in (
        lambda: math_reward(data_source="x", solution_str="4", ground_truth="4", extra_info={}),
        lambda: math_reward(["2+2?4"], ["2+2?"], ["4"]),
        lambda: math_reward("2+2?", "4", [1], [2], answer="4"),
        lambda: math_reward(completion="4", answer="4"),
    ):
        with pytest.raises(InvalidField, match=r"undecided is None, and \w+ takes only numbers"):
            call()


def test_undecided_may_raise_with_its_result():
    """The error says why, also after a pickle, as errors of other processes arrive."""
    with pytest.raises(Undecided, match="undecided: the target is empty") as raised:
        Reward(undecided="raise")(*BLANK_TARGET)

    assert pickle.loads(pickle.dumps(raised.value)).graded == raised.value.graded


# Columns and options.


def test_the_column_of_the_targets_is_one_of_a_usual_name_or_named():
    """With several, or none, the error says what there is."""
    assert trl(math_reward, ["4"], final_answer=["4"], other=["5"]) == [1.0]
    assert trl(Reward(target="other"), ["4"], answer=["5"], other=["4"]) == [1.0]
    with pytest.raises(InvalidField, match="the columns answer, solution have usual names: name one"):
        trl(math_reward, ["4"], answer=["4"], solution=["so 4"])
    with pytest.raises(InvalidField, match="have no usual name"):
        trl(math_reward, ["4"], right=["4"])
    with pytest.raises(InvalidField, match="target is 'gold', and the columns are"):
        trl(Reward(target="gold"), ["4"], answer=["4"])


def test_graders_have_their_options_and_choices():
    """A grader of any name; the choices of a question are a column, and a format needs no target."""
    numeric = answer_reward("numeric", {"absolute_tolerance": 0.1}, scale=2.0)
    choice = answer_reward("multiple_choice")

    assert trl(numeric, ["3.05", "4"], answer=["3", "3"]) == [2.0, 0.0]
    assert trl(choice, ["The answer is B."], answer=["two"], choices=[["one", "two"]]) == [1.0]
    assert trl(format_reward, ["\\boxed{4}", "4"]) == [1.0, 0.0]
    assert trl(Reward("format", scale=(-1.0, 0.5)), ["\\boxed{4}", "4"]) == [0.5, -1.0]
    assert numeric.__name__ == "numeric_reward"


def test_programs_are_run_against_tests():
    """Tests are texts or objects; a program that passes some of them may score their share."""
    tests = ["assert add(1, 2) == 3", {"function": "add", "arguments": [1, 2], "expected": 4}]

    assert trl(code_reward, [PROGRAM, PROGRAM], tests=[tests[:1], tests]) == [1.0, 0.0]
    assert trl(Reward("code", {"partial": True}), [PROGRAM], tests=[tests]) == [0.5]
    assert code_reward(PROGRAM, json.dumps({"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]})) == 1.0


@rows(
    ("make", "message"),
    [
        (lambda: Reward(undecided="zero"), "undecided is 'zero', must be None"),  # pyright: ignore[reportArgumentType]
        (lambda: Reward(undecided=float("nan")), "undecided is nan"),
        (lambda: Reward(scale="1"), "scale is '1'"),  # pyright: ignore[reportArgumentType]
        (lambda: Reward(scale=(1.0,)), "scale is"),  # pyright: ignore[reportArgumentType]
        (lambda: Reward(options={"a": object()}), "options cannot be written as JSON"),
        (lambda: Reward("nothing").start(), "grader is 'nothing', known are: exact_match"),
        (lambda: Reward(options={"degress": True}).start(), "did you mean degrees"),
        (lambda: Reward("rubric", {"judge": "openai:s/m"}).start(), "which asks a model"),
        (lambda: Reward(processes=-1).start(), "processes"),
        (lambda: math_reward("4", True), "targets have a bool"),
        (lambda: math_reward.grade(["4"], []), "targets are 0, and choices 0, of 1 responses"),
    ],
)
def test_what_cannot_be_used_is_refused(make: Any, message: str):
    """With the field, and what is known."""
    with pytest.raises(InvalidField, match=message):
        make()


def test_counts_are_logged_once_a_step(caplog: pytest.LogCaptureFixture):
    """A batch is a step; of single calls one line is logged a minute, beginning with the first that has no score."""
    reward = Reward()
    with caplog.at_level(logging.WARNING, "crucible_bridge.rewards"):
        trl(reward, ["4", "5"], answer=["4", " "])
        for _ in range(3):
            reward(*BLANK_TARGET)
        trl(reward, ["4"], answer=["4"])

    assert caplog.messages == [
        "math_reward: 2 responses, 1 undecided (0 of them at a limit of time), 0 errors; the last: the target is empty",
        "math_reward: 4 responses, 3 undecided (0 of them at a limit of time), 0 errors",
    ]
    assert reward.counts.total == {"graded": 6, "undecided": 4, "timeouts": 0, "errors": 0}


# From anywhere.


def test_a_reward_is_copied_and_pickled():
    """As Ray, process pools and deep copies of configurations do it."""
    reward = Reward(options={"degrees": False}, undecided=0.0, scale=(-1, 1))

    for copied in (copy.deepcopy(reward), pickle.loads(pickle.dumps(reward))):
        assert copied("4", "4") == 1.0
        assert copied("5", "4") == -1.0
        assert (copied.__name__, copied.options) == ("math_reward", {"degrees": False})


def test_a_text_that_hangs_holds_up_no_other():
    """Many threads and event loops grade at once; what hangs is answered late, and is the only one undecided."""
    response, target = hanging()
    with ThreadPoolExecutor(17) as threads:
        slow = threads.submit(math_reward, response, target)
        others = [threads.submit(math_reward, f"The answer is {n}/7.", f"{2 * n}/14") for n in range(160)]
        others += [threads.submit(asyncio.run, math_reward.score(f"{n}/9", f"{3 * n}/27")) for n in range(32)]
        order = [future is slow for future in as_completed([slow, *others])]

    assert [future.result() for future in others] == [1.0] * 192
    assert slow.result() is None
    assert order.index(True) > 100


def test_no_signal_is_touched():
    """Handlers and timers are those of before; the call comes from another thread, where no handler may be set."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(Reward(processes=3), *hanging()).result() is None

    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_notebook_waits_for_nothing_else():
    """A blocking call within a running event loop neither fails nor needs the loop."""

    async def cell() -> float | None:
        return math_reward("4", "4")

    assert asyncio.run(cell()) == 1.0


async def test_a_cancelled_wait_costs_no_later_call():
    """The answer that comes too late is dropped."""
    waiting = asyncio.ensure_future(math_reward.score(*hanging()))
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting

    assert await math_reward.score("4", "4") == 1.0


def test_without_the_workers_package_the_error_names_an_address():
    """The client may be installed alone, in a trainer's environment."""
    program = """
import sys
sys.path[:] = [path for path in sys.path if "python_worker" not in path]
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
from crucible_bridge.rewards import math_reward
try:
    math_reward("4", "4")
except Exception as error:
    print(type(error).__name__, error)
print("crucible_worker" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.startswith(FailedPrecondition.__name__)
    assert 'or name a worker by address="HOST:PORT"' in done.stdout
    assert done.stdout.endswith("False\n")


def test_nothing_heavy_is_loaded_by_a_trainer():
    """Neither by the import, nor by grading here or at an address: gRPC, and all graders, are in other processes."""
    program = """
import sys
from crucible_bridge.rewards import Reward, math_reward
print(*{name.partition(".")[0] for name in sys.modules})
math_reward("4", "4")
try:
    Reward(address="127.0.0.1:1", patience=0)("4", "4")
except Exception as error:
    print(type(error).__name__)
print(*{name.partition(".")[0] for name in sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported, error, used = done.stdout.splitlines()

    assert error == "Unavailable"
    heavy = {"asyncio", "crucible_worker", "google", "grpc", "msgspec", "numpy", "sympy", "torch"}
    assert heavy.isdisjoint(imported.split())
    assert heavy.isdisjoint(used.split())


# At workers.


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a worker serves."""
    with serving(tmp_path_factory.mktemp("worker"), "--grading-processes=2") as (_, address):
        yield address


_CASES: list[tuple[str, dict[str, Any], str, Any, list[str]]] = [
    ("math", {}, "The answer is 1/2.", ["0.5"], []),
    ("math", {"percent_lenient": False}, "50%", ["0.5"], []),
    ("math", {}, "4", [" "], []),
    ("math", {}, "4", [], []),
    ("math", {}, "\ud800 \\boxed{4}", ["4"], []),
    ("math", {}, *hanging(), []),
    ("exact_match", {}, "Paris", ["paris"], []),
    ("exact_match", {"fold_case": True, "collapse_whitespace": True}, "New  York", ["new york"], []),
    ("exact_match", {"compare": "list", "ordered_lists": True}, "[2, 1]", ["[1, 2]"], []),
    ("exact_match", {"nfkc": True}, "\uff21", ["A"], []),
    ("exact_match", {"compare": "json"}, '{"b": 1.0, "a": 2}', ['{"a": 2, "b": 1}'], []),
    ("contains", {"strip_punctuation": True}, "It is: Paris!", ["Paris"], []),
    ("multiple_choice", {"ordered": True}, "B, A", ["A, B"], ["one", "two"]),
    ("numeric", {"relative_tolerance": 0.1}, "about 95", ["100"], []),
    ("multiple_choice", {}, "The answer is B.", ["B"], ["one", "two"]),
    ("multiple_choice", {}, "The answer is one.", ["B"], ["one", "two"]),
    ("regex", {"full": True}, "abc", ["a.c"], []),
    ("f1", {"threshold": 0.9}, "a b c", ["a b"], []),
    ("format", {}, "\\boxed{}", [], []),
    ("format", {"form": "marks", "marks": ["Step 1", "Answer"]}, "Step 1 .. Answer", [], []),
    ("format", {"form": "json_schema", "json_schema": {"type": "array"}}, "{}", [], []),
    ("code", {}, PROGRAM, ["assert add(1, 2) == 3"], []),
    ("code", {}, PROGRAM, [{"function": "add", "arguments": [1, 2], "expected": 4}, "assert add(1, 2) == 3"], []),
    ("code", {"partial": True}, PROGRAM, ["assert add(1, 2) == 4", "assert add(1, 2) == 3"], []),
    ("code", {}, PROGRAM, [], []),
    ("code", {}, PROGRAM, [{"nothing": 1}], []),
    ("code", {}, PROGRAM, [{"stdout": "1", "absolute_tolerance": "x"}], []),
    ("code", {}, PROGRAM, [{"function": "add", "arguments": [1, 2], "expected": 3.1, "absolute_tolerance": 0.2}], []),
    ("code", {"by_token": True}, PROGRAM, ['{"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}'], []),
    ("code", {"timeout_ms": 500}, "while True: pass", [{"stdout": "1"}], []),
]


@rows(("grader", "options", "response", "target", "choices"), _CASES)
def test_a_worker_gives_the_verdicts_of_this_machine(
    address: str, grader: str, options: dict[str, Any], response: str, target: Any, choices: list[str]
):
    """Verdict, score and extracted answer do not depend on where grading runs."""

    def graded(reward: Reward) -> tuple[Any, ...]:
        ((verdict, score, _, _, extracted),) = reward.grade([response], [target], [choices] if choices else ())
        return verdict, score, extracted

    assert graded(Reward(grader, options, address=address)) == graded(Reward(grader, options))


@rows(
    ("grader", "options", "message"),
    [
        ("exact_match", {"nfck": True}, "nfck"),
        ("math", {"degress": True}, "degress"),
        ("nothing", {}, "grader is 'nothing'"),
        ("format", {"form": "marks"}, "marks"),
        ("numeric", {"absolute_tolerance": -1}, "absolute_tolerance"),
    ],
)
def test_what_cannot_be_sent_is_refused(address: str, grader: str, options: dict[str, Any], message: str):
    """Not left out."""
    with pytest.raises(InvalidField, match=message):
        Reward(grader, options, address=address).start()


def test_workers_of_a_pool_share_the_work(tmp_path: Path):
    """Several addresses: what one of them leaves is graded by the others."""
    responses = [f"The answer is {n}." for n in range(1_000)]
    targets = [str(n) for n in range(1_000)]
    with serving(tmp_path, "--grading-processes=2") as (first, address):
        second_folder = tmp_path / "second"
        second_folder.mkdir()
        with serving(second_folder, "--grading-processes=2") as (_, other):
            reward = Reward(address=[address, other])
            assert {graded.verdict for graded in reward.grade(responses, targets)} == {"correct"}
            first.kill()
            assert {graded.verdict for graded in reward.grade(responses, targets)} == {"correct"}


def test_a_token_is_sent_and_a_wrong_one_is_an_error_at_once(tmp_path: Path):
    """No patience is spent on what time does not change."""
    token = tmp_path / "token"
    token.write_text("s3cret")
    token.chmod(0o600)
    with serving(tmp_path, f"--token-file={token}", "--grading-processes=2") as (_, address):
        assert Reward(address=address, token="s3cret")("4", "4") == 1.0
        with pytest.raises(Unauthenticated):
            Reward(address=address, token="another")("4", "4")


def test_a_worker_may_restart_while_rewards_wait(tmp_path: Path):
    """What is asked while none serves is answered by the next one at the address, and by others of a pool."""
    options = (f"--unix-socket={tmp_path / 'socket'}", "--grading-processes=2")
    with serving(tmp_path, *options):
        reward = Reward(address=f"unix:{tmp_path / 'socket'}", undecided=0.0)
        assert reward("4", "4") == 1.0
    asked: list[list[Graded]] = []
    waiting = threading.Thread(target=lambda: asked.append(reward.grade(["4"], ["4"])))
    waiting.start()
    (tmp_path / "ready").unlink()
    with serving(tmp_path, *options):
        waiting.join()

    assert [grade.verdict for grade in asked[0]] == ["correct"]


@pytest.mark.clusters
@needs.installed("ray")
@pytest.mark.filterwarnings("ignore")
def test_an_actor_of_ray_grades():
    """A reward that the program has used travels to an actor, which grades in several threads."""
    ray: Any = importlib.import_module("ray")
    assert math_reward("4", "4") == 1.0
    ray.init(num_cpus=1, include_dashboard=False)
    try:

        class Actor:
            def __init__(self, reward: Reward) -> None:
                self.reward = reward

            def graded(self, response: str) -> float | None:
                return self.reward(response, "1/2")

        actor = ray.remote(max_concurrency=4)(Actor).remote(math_reward)
        found = ray.get([actor.graded.remote(text) for text in ("0.5", "2/4", "3", "50%")])
    finally:
        ray.shutdown()

    assert found == [1.0, 1.0, 0.0, 1.0]

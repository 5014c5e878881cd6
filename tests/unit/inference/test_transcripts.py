"""What is heard of a sample's calls: turns where there are several, within their bound."""

from crucible_bridge.types import SampledSequence
from crucible_worker.inference.transcripts import CallListener, Transcript


def said(listener, prompt, answer):
    """A call that is answered."""
    listener.answered(listener.asked(prompt), prompt, [SampledSequence(text=answer, tokens=(), stop_reason="stop")])


def test_one_question_has_no_turns_and_loses_none():
    """The prompt of a single call that is too long is held alone, counts, and no turn is missing."""
    transcript = Transcript(10)
    said(CallListener(transcript), "x" * 20, "y")
    assert (transcript.turns(), transcript.left_out) == ((), 0)
    assert (transcript.prompt, transcript.held) == ("x" * 20, 20)


def test_turns_without_room_are_counted():
    """Of several calls those that do not fit are left out, and their bytes are told."""
    transcript = Transcript(10)
    for prompt, answer in (("x" * 20, "y"), ("a", "b"), ("c", "d")):
        said(CallListener(transcript), prompt, answer)
    assert [turn.text for turn in transcript.turns()] == ["a", "b", "c", "d"]
    assert (transcript.left_out, transcript.held) == (21, 4)

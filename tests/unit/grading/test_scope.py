"""What a text says of an answer: it states it, or only mentions it, asks for it, or declines to give one."""

from crucible_worker.grading.extract import extract
from crucible_worker.grading.marker import final_line
from crucible_worker.grading.scope import MAX_MENTIONS, SCOPE_REACH, declines, is_asked, mention
from tests.tables import rows


@rows(
    "text",
    [
        "I would not claim that the total is @",
        "It isn't true that the sum equals @",
        "We are not convinced the result is @",
        "Nobody believes that it is @",
        "Let us find out whether the age is @",
        "Assume for now that the answer is @",
        "One might be tempted to say that it is @",
        "The naive guess is @",
        "A frequent error is to write @",
        "None of the numbers is right: 3, @",
        "Nous doutons que la r\u00e9ponse soit @",
        "No pienso que la respuesta sea @",
        "\u6211\u6000\u7591\u7b54\u6848\u662f@",
    ],
)
def test_an_answer_is_mentioned(text: str) -> None:
    """What is denied, doubted, asked, supposed, thought by others or called wrong is not stated."""
    assert mention(text, text.index("@")) >= 0


@rows(
    "text",
    [
        "I would claim that the total is @",
        "It is not hard to see that the sum equals @",
        "No one doubts that the result is @",
        "If x is real, the age is @",
        "I was not convinced, but it is @",
        "Suppose that n = 3. The answer is @",
        "The number of pupils who do not believe in ghosts is @",
        "The cost of each wrong answer is @",
        "The common factor is @",
        "Il n'y a pas de doute que la r\u00e9ponse est @",
        "\u4e0d\u96be\u770b\u51fa\u7b54\u6848\u662f@",
        "Not sure\n@",
    ],
)
def test_an_answer_is_stated(text: str) -> None:
    """A negation, a condition or a doubt in another clause changes nothing."""
    assert mention(text, text.index("@")) == -1


@rows(("items", "mentioned"), [(7, True), (8, False)])
def test_a_mention_begins_near_its_answer(items: int, mentioned: bool) -> None:
    """Characters before the reach are not read."""
    before = "None of these is right:" + f" {'7' * 16}," * items

    assert (len(before) <= SCOPE_REACH) is mentioned
    assert (mention(before + "7", len(before)) >= 0) is mentioned


def test_mentions_are_bounded() -> None:
    """A marker before so many mentions is not read."""
    denied = "\nI doubt that the answer is 7."

    assert extract("The answer is 5." + denied * (MAX_MENTIONS - 1)).how == "marker"
    assert extract("The answer is 5." + denied * MAX_MENTIONS).how != "marker"
    assert extract("\\boxed{5}" + denied.replace("7", "\\boxed{7}") * (MAX_MENTIONS - 1)).answer == "5"
    assert extract("\\boxed{5}" + denied.replace("7", "\\boxed{7}") * MAX_MENTIONS).how != "box"


@rows(
    ("text", "asked"),
    [
        ("Is it 7?", True),
        ("Well, does this give 7?", True),
        ("Let me see: is it 7?", True),
        ("Is it 7? Yes.", False),
        ("It is 7? No.", True),
        ("It is 7, right?", False),
        ("It is 7. Is that clear?", False),
        ("\u662f7\u5417\uff1f", True),
    ],
)
def test_a_question_is_no_answer(text: str, asked: bool) -> None:
    """A number in a question counts only if the text affirms it."""
    at = text.index("7")

    assert is_asked(text, at, at + 1) is asked


@rows(
    ("text", "declined"),
    [
        ("He has 7 coins, but I cannot tell how much they are worth.", True),
        ("There are 7 doors. There is not enough information to solve this.", True),
        ("It may be 7, but I am not sure.", True),
        ("I do not know how 7 of them cost so much.", True),
        ("I do not know for sure, but it is 7.", False),
        ("We do not know the price, so the answer is 7.", False),
        ("There are 7 doors. We do not know if they are open.", False),
        ("There are 7 doors. We do not know the colour, but it is not needed.", False),
        ("\u65e0\u6cd5\u786e\u5b9a\u3002", True),
    ],
)
def test_a_response_may_decline(text: str, declined: bool) -> None:
    """A number before the words that there is no answer is none; one after them is the answer."""
    assert declines(text) is declined


@rows(
    ("text", "answer"),
    [
        ("so\n**Answer: D**", "D"),
        ("so\n#### 7", "7"),
        ("so\nThe answer is 7", ""),
        ("so\nAnswer: \\boxed{7}", ""),
        ("so\nAnswer: see the formula above", ""),
        ("Answer: 7\nso", ""),
    ],
)
def test_a_last_line_is_labelled(text: str, answer: str) -> None:
    """The last line is an answer if it begins with a label, and holds no box."""
    assert final_line(text) == answer

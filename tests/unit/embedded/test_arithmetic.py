"""The built-in problems: a split that never moves."""

from crucible_worker.embedded.arithmetic import held_out, training_problems


def test_every_problem_is_on_one_side_of_the_split():
    """All two-digit additions are there, each either held out or trained on."""
    outside = {sample.input for sample in held_out()}
    inside = {question for question, _ in training_problems()}

    assert outside.isdisjoint(inside)
    assert outside | inside == {f"{a}+{b}=" for a in range(10, 100) for b in range(10, 100)}


def test_the_split_is_the_same_for_ever():
    """Ids and their order are part of what makes an evaluation the same: they are pinned."""
    assert len(held_out()) == 815
    assert [sample.id for sample in held_out(3)] == ["23+74", "68+42", "19+11"]


def test_answers_are_right():
    """The only target of a problem is its sum."""
    for sample in held_out():
        a, b = sample.id.split("+")
        assert sample.input == f"{sample.id}="
        assert sample.targets == (str(int(a) + int(b)),)


def test_a_limit_takes_the_first_ones():
    """A limited data set is the beginning of the whole."""
    assert held_out(10) == held_out()[:10]
    assert held_out(0) == ()
    assert held_out(10_000) == held_out()

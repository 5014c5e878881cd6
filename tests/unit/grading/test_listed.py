"""How lists are read, at their bounds; what equals what is in the cases of `exact_match`."""

from crucible_worker.grading.text import MAX_DEPTH, MAX_TOKENS, read_list


def test_what_is_read_of_a_list():
    """Texts without quotes and the white space around; brackets with their kind; what stands next to each other."""
    assert read_list(" [1, 'a, b' ,\"c\\u0064\", (e,), [], f (g)]\n") == (
        "1",
        "a, b",
        "cd",
        ("(", "e"),
        ("[",),
        ("", "f", ("(", "g")),
    )


def test_a_list_has_bounds():
    """At them it is read, beyond them it is none."""
    deep = ["[" * levels + "]" * levels for levels in (MAX_DEPTH, MAX_DEPTH + 1)]
    fits, above = ("[" + "1," * count + "[]" * rest + "]" for count, rest in ((99_998, 1), (99_998, 2)))

    assert [read_list(text) is None for text in deep] == [False, True]
    assert MAX_TOKENS == 2 * 99_998 + 4
    assert [read_list(text) is None for text in (fits, above)] == [False, True]

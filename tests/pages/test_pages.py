"""Every page, as a report file and live: what it shows, and what a reader can do with it."""

import itertools
from collections.abc import Callable

from tests.pages.conftest import Visit
from tests.pages.results import STEPS

Open = Callable[..., Visit]


def column(visit: Visit, n: int) -> list[str]:
    """The texts of a column of the table of samples, from 1."""
    return visit.page.locator(f"table.samples tbody td:nth-child({n})").all_inner_texts()


def test_a_run_shows_its_metrics_over_its_steps(at: Open):
    """A chart for each metric that has a goal, with its best step in words, and the same numbers as a table."""
    visit = at("run/lab")

    assert visit.title == "Run lab"
    sentences = visit.page.locator("p.summary").all_inner_texts()
    assert sentences[0].startswith("accuracy: best at step 500, 0.8 (")
    assert "told apart from it, sample by sample." in sentences[0]
    charts = visit.page.locator("[role=img].chart")
    assert charts.count() >= 2
    label = charts.first.get_attribute("aria-label")
    assert label.startswith("step 100: 0.3 (0.2253 to 0.3872), step 500: 0.8")
    assert "best step 500: 0.8" in label
    assert charts.first.locator("canvas").count() == 1
    visit.page.locator("figure details summary").first.click()
    visit.until("document.querySelector('figure tbody') !== null")
    steps = visit.page.locator("figure").first.locator("tbody tr td:first-child").all_inner_texts()
    assert steps == [f"step {step}" for step in STEPS]


def test_a_point_of_a_chart_leads_to_its_evaluation(at: Open):
    """A click on the chart opens the evaluation whose point is nearest."""
    visit = at("run/lab")

    place = visit.page.locator(".chart .u-over").first
    box = place.bounding_box()
    assert box is not None
    place.hover(position={"x": box["width"] - 8, "y": box["height"] / 2})
    place.click(position={"x": box["width"] - 8, "y": box["height"] / 2})
    visit.until("location.hash === '#/evaluation/lab-500'")


def test_an_evaluation_shows_how_its_samples_are_spread(at: Open):
    """Headline metrics with their intervals, verdicts by number, histograms, and links to the samples behind them."""
    visit = at("evaluation/lab-300")
    visit.until("document.querySelectorAll('.histogram').length >= 3")

    assert visit.title == "Step 300 of lab"
    assert "0.6" in visit.page.inner_text(".tiles")
    assert "0.5106 to 0.6832" in visit.page.inner_text(".tiles")
    assert "mean 0.6 · median 1 · 95 % up to 1" in visit.text
    assert "48" in visit.page.inner_text("table:has(caption:text('Verdicts of accuracy'))")
    visit.page.get_by_role("link", name="Wrong").click()
    visit.until("document.querySelectorAll('table.samples tbody tr').length === 48")


def test_samples_are_filtered_searched_and_sorted(at: Open):
    """By verdict, by text of any part, by metadata; all of it stands in the address."""
    visit = at("evaluation/lab-300/samples?evaluator=accuracy")
    page = visit.page

    assert page.locator("table.samples tbody tr").count() == 100, visit.text
    page.get_by_role("link", name="Next page").click()
    visit.until("document.querySelectorAll('table.samples tbody tr').length === 20")
    page.select_option("#filter", "wrong")
    visit.until("document.querySelectorAll('table.samples tbody tr').length === 48")
    assert set(column(visit, 7)) == {"incorrect"}
    page.fill("#search", "SUM-1")
    page.select_option("#field", "level")
    assert page.locator("#value option").all_inner_texts() == ["choose a value", "0", "1", "2", "3"]
    page.select_option("#value", "2")
    visit.until("location.hash.includes('search=SUM-1') && location.hash.includes('where=level%3D2')")
    visit.until("document.querySelectorAll('table.samples tbody tr').length < 48")
    found = column(visit, 2)
    assert found
    assert all(name.startswith("sum-1") and int(name.removeprefix("sum-")) % 4 == 2 for name in found)
    page.get_by_label("do not filter by level=2").click()
    visit.until("!location.hash.includes('where')")
    visit.open("evaluation/lab-300/samples?evaluator=accuracy&sort=tokens&descending=1")
    tokens = [int(text) for text in column(visit, 9)]
    assert tokens == sorted(tokens, reverse=True)


def test_samples_that_changed_against_another_evaluation(at: Open):
    """Those whose verdict differs: between step 100 and step 500 half of the sums turn right."""
    visit = at("evaluation/lab-500/samples")

    visit.page.select_option("#filter", "changed")
    visit.until("document.querySelectorAll('#other option').length === 5")
    visit.page.select_option("#other", label="step 100 (lab-100)")
    visit.until("document.querySelector('main').innerText.includes('of 60 samples')")
    assert set(column(visit, 8)) == {"correct"}
    visit.page.get_by_role("link", name="Compare both").click()
    visit.until("document.querySelector('h1')?.innerText === 'Comparison of step 100, step 500'")


def test_a_sample_leads_to_its_answers_over_the_steps(at: Open):
    """Of every step of its run, one below the other, with what changed its verdict."""
    visit = at("evaluation/lab-300/sample/accuracy/sum-3/0")

    visit.page.get_by_role("link", name="This sample over the steps of lab").click()
    visit.until("document.querySelectorAll('.steps tbody tr').length === 5")
    assert visit.title == "Sample sum-3 over the steps of lab"
    assert visit.page.locator(".steps td:nth-child(1)").all_inner_texts() == [f"step {step}" for step in STEPS]
    verdicts = visit.page.locator(".steps td:nth-child(2)").all_inner_texts()
    assert verdicts == ["incorrect 0"] * 4 + ["correct 1 changed"]
    assert visit.page.locator(".steps mark").all_inner_texts() == ["10"] * 4 + ["9"]


def test_a_sample_shows_prompt_answer_and_grade(at: Open):
    """The graded part is marked, the reasoning is folded, and grade, target and metadata are there."""
    visit = at("evaluation/lab-300/sample/accuracy/sum-1/0")
    page = visit.page

    assert visit.title == "Sample sum-1"
    assert "What is 1 + 4?" in visit.text
    assert page.inner_text("mark") == "6"
    assert "I add them" not in visit.text
    page.get_by_text("Reasoning, ").click()
    visit.until("document.querySelector('main').innerText.includes('I add them')")
    facts = page.inner_text("dl")
    assert "target\n5" in facts
    assert "extracted\n6" in facts
    assert page.locator(".verdict").first.inner_text() == "incorrect"


def test_samples_follow_each_other_by_keyboard(at: Open):
    """With j and k to the next and the previous sample of what was filtered; / searches."""
    visit = at("evaluation/lab-300/samples?evaluator=accuracy&filter=wrong")
    first, second = column(visit, 2)[:2]

    visit.page.locator("table.samples tbody a").first.focus()
    visit.page.keyboard.press("Enter")
    visit.until("name => document.querySelector('h1')?.innerText === name", f"Sample {first}")
    visit.page.keyboard.press("j")
    visit.until("name => document.querySelector('h1')?.innerText === name", f"Sample {second}")
    visit.page.keyboard.press("k")
    visit.until("name => document.querySelector('h1')?.innerText === name", f"Sample {first}")
    visit.page.get_by_role("link", name="Back to the samples").press("Enter")
    visit.until("document.querySelector('table.samples') !== null")
    visit.page.keyboard.press("/")
    assert visit.page.evaluate("document.activeElement.id") == "search"


def test_rollouts_are_a_tree(at: Open):
    """Each rollout with its reward, its turns with theirs and their tokens."""
    visit = at("evaluation/rollouts/sample/rl_test_set/sum-3/0", file="rollouts")

    summaries = visit.page.locator("main > section details > summary", has_text="Rollout").all_inner_texts()
    assert summaries == [f"Rollout {n} · reward 1 · 1 turn" for n in (1, 2, 3)]
    assert "A group of 3 rollouts: mean reward 1, from 1 to 1." in visit.text
    turn = visit.page.locator("details.rollout details.turn").first
    assert turn.locator("> summary").inner_text().startswith("Turn 1 · reward 1 · ")
    assert turn.locator(".bubble .role").first.inner_text().startswith("user")
    assert "reward 1" in turn.locator(".bubble.assistant .role").inner_text()


def test_tool_calls_are_set_apart(at: Open):
    """What a model writes as a call of a tool is a part of its own, and its text stays whole."""
    visit = at("evaluation/tools/sample/rl_test_set/sum-1/0", file="tools")

    assert visit.page.locator(".call pre").first.inner_text() == '{"name": "add"}'
    assert visit.page.locator(".bubble.assistant").first.inner_text().endswith("</tool_call> The answer is 5.")


def test_parsed_calls_and_the_tools_of_a_sample_are_shown(at: Open):
    """The tools before the question; each call by its name and arguments, and one that is none with its reason."""
    visit = at("evaluation/called/sample/accuracy/sum/0", file="called")

    asked = visit.page.locator(".bubble.other").first.inner_text()
    assert '"name": "add"' in asked
    assert "<b>two</b>" in asked
    calls = visit.page.locator(".bubble.assistant .call").all_inner_texts()
    assert calls[0].splitlines()[-1] == 'add {"a": 1}'
    assert "cannot be parsed" in calls[1]
    assert "is not JSON" in calls[1]
    assert calls[1].splitlines()[-1] == "<tool_call>{</tool_call>"
    assert len(calls) == 2
    assert visit.page.locator(".bubble.assistant > pre").inner_text().endswith("<tool_call>{</tool_call>")


def test_evaluations_are_compared(at: Open):
    """Differences with intervals, the samples that changed with both answers, and one sample over all of them."""
    visit = at("compare/lab-100,lab-300,lab-500")
    page = visit.page

    differences = page.inner_text("table:has(caption:text('Differences'))")
    assert "0.3" in differences
    assert "0.5" in differences
    assert page.locator("svg.whisker.sure").count() == 2
    page.get_by_text("Better in step 500").click()
    assert page.locator("details details summary").first.inner_text() == "sum-3 · What is 3 + 6?: 0 to 1"
    page.locator("details details summary").first.click()
    visit.until("document.querySelectorAll('details details article').length === 2")
    assert page.locator("details details article .verdict").all_inner_texts() == ["incorrect", "correct"]
    page.fill("#sample", "sum-3")
    page.get_by_role("button", name="Show").click()
    visit.until("document.querySelectorAll('section > div > .answers article').length === 3")


def test_lists_have_the_interval_of_every_metric_that_has_one(at: Open):
    """In the list of evaluations, and of a comparison's metrics; a metric without one has none."""
    visit = at("run/lab")
    row = visit.page.locator("table:has(caption:text('Evaluations')) tbody tr").last
    assert row.locator(".interval").all_inner_texts() == ["0.7196 to 0.8618"]
    assert "nll" in visit.page.inner_text("table:has(caption:text('Evaluations')) thead")
    visit.open("compare/lab-100,lab-500")
    metrics = visit.page.locator("table:has(caption:text('Metrics'))")
    assert metrics.locator("tr", has_text="accuracy").first.locator(".interval").count() == 2
    assert metrics.locator("tr", has_text="nll").first.locator(".interval").count() == 0


def test_every_pair_can_be_compared(at: Open):
    """Whichever evaluation is the baseline: the difference has its sign, and an interval around it."""
    visit = at("run/lab")
    differences = {}
    for first, second in itertools.permutations(STEPS, 2):
        visit.open(f"compare/lab-{first},lab-{second}")
        row = visit.page.locator("table:has(caption:text('Differences')) tbody tr", has_text="accuracy").first
        number = float(row.locator(".difference").inner_text())
        low, high = map(float, row.locator("td").nth(3).inner_text().split(" to "))
        assert low <= number <= high
        differences[first, second] = number

    assert {pair: -number for pair, number in differences.items()} == {
        (second, first): number for (first, second), number in differences.items()
    }
    assert differences[100, 500] == 0.5
    assert differences[300, 500] == 0.2


def test_two_to_ten_evaluations_can_be_chosen(at: Open):
    """The button is off until two are chosen."""
    visit = at("run/lab")
    button = visit.page.get_by_role("button", name="Compare")

    assert button.is_disabled()
    visit.page.check("input[value='lab-100']")
    visit.page.check("input[value='lab-200']")
    button.click()
    visit.until("document.querySelector('h1')?.innerText === 'Comparison of step 100, step 200'")


def test_a_page_that_does_not_exist_says_so(at: Open):
    """A deep link to what is gone is a sentence, not an empty page."""
    visit = at("evaluation/gone")

    assert visit.title == "This page cannot be shown"
    assert "gone" in visit.page.inner_text("[role=alert]")


def test_the_look_can_be_changed(at: Open):
    """Between light and dark, whatever the system prefers."""
    visit = at("run/lab", color_scheme="light")
    colour = "getComputedStyle(document.body).backgroundColor"

    light = visit.page.evaluate(colour)
    visit.page.get_by_role("button", name="Change between light and dark").click()
    assert visit.page.evaluate(colour) != light

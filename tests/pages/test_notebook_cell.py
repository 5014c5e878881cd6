"""The report in the output of a notebook's cell: `crucible_bridge.frames.plots`."""

from collections.abc import Callable
from pathlib import Path

from crucible_bridge.frames import Charts
from tests.pages.conftest import Visit
from tests.pages.results import RUN


def test_a_report_in_a_cell_stays_in_its_frame(
    visits: Callable[..., Visit], report_files: Path, tmp_path: Path
) -> None:
    """Its charts are drawn, and its links lead to its own pages: neither opens the notebook within the cell."""
    notebook = tmp_path / "notebook.html"
    charts = Charts((report_files / f"{RUN}.html").read_text("utf-8"))
    notebook.write_text(f"<!doctype html><title>notebook</title><p>cell</p>{charts._repr_html_()}", "utf-8")
    visit = visits(notebook.as_uri())
    visit.page.goto(visit.home)
    cell = visit.page.frame_locator("iframe")

    cell.locator("h1", has_text="Run lab").wait_for()
    assert cell.locator(".chart canvas").count() >= 2
    cell.locator("a[href='#/evaluation/lab-500']").first.click()
    cell.locator("h1", has_text="step 500").wait_for()
    assert visit.page.url == visit.home
    assert [frame.url for frame in visit.page.frames[1:]] == ["about:srcdoc#/evaluation/lab-500"]

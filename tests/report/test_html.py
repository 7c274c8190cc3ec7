from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.report.corpus import (
    HOSTILE,
    REPORTS,
    crowded,
    dead,
    diverged,
    falling,
    finding,
    hostile,
    long_run,
    one_record,
    report,
    run,
    several,
    thirty,
)
from trainproof.report.escape import printable
from trainproof.report.html import MOST_DRAWN, MOST_OPEN, render_html
from trainproof.verdict import Evidence, Severity

VOID = {"meta", "br"}


class Page(HTMLParser):
    """What a browser would find: elements with their attributes and the text in them, and tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if not (self.open and self.open[-1] == "style"):
            self.texts.append(data)

    def all(self, tag: str, css: str = "") -> list[dict[str, str | None]]:
        return [
            attrs for name, attrs in self.elements if name == tag and css in [*(attrs.get("class") or "").split(), ""]
        ]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_is_well_formed_self_contained_and_unscripted(name: str) -> None:
    html = render_html(REPORTS[name]())
    page = Page(html)
    assert not page.wrong
    assert not page.open
    assert {tag for tag, _ in page.elements} <= {
        *(
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "header",
            "main",
            "footer",
            "section",
            "figure",
            "figcaption",
        ),
        *("div", "p", "h1", "h2", "h3", "b", "span", "a", "code", "br", "dl", "dt", "dd", "details", "summary"),
        *("table", "thead", "tbody", "tr", "th", "td", "svg", "g", "path", "line", "rect", "circle", "text", "desc"),
    }
    for tag, attrs in page.elements:
        assert not [key for key in attrs if key.startswith("on") or key in {"src", "srcset", "action"}], tag
        assert (attrs.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import|https?:", html)


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_every_id_is_unique_and_every_reference_is_met(name: str) -> None:
    page = Page(render_html(REPORTS[name]()))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.elements:
        wanted = [attrs.get("aria-labelledby"), attrs.get("aria-describedby"), (attrs.get("href") or "").lstrip("#")]
        assert {one for one in wanted if one} <= set(ids)


@pytest.mark.parametrize("name", sorted(REPORTS))
def test_drawings_hold_finite_numbers_only(name: str) -> None:
    html = render_html(REPORTS[name]())
    for drawing in re.findall(r'<svg class="plot".*?</svg></svg>|<svg class="plot".*?</svg>', html, re.DOTALL):
        values = re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy|width|height|d)="([^"]*)"', drawing)
        assert not [value for value in values if re.search("nan|inf", value, re.IGNORECASE)]


def test_hostile_text_is_text() -> None:
    html = render_html(hostile())
    page = Page(html)
    assert not page.all("script")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\ud800-\udfff]", html)
    assert printable(HOSTILE) in page.text
    assert "{{ 7*7 }}" in page.text
    assert "x" * 200 not in html


def test_single_run_says_everything() -> None:
    page = Page(render_html(diverged()))
    last = repr(diverged().runs[0].findings[0].evidence[1].value)
    assert page.text.startswith("FAIL: trainer_state.json, trainproof epoch trainproof epoch FAIL trainer_state.json")
    for told in (
        "TP203 loss-diverged at steps 60 to 100",
        "the loss rose from its best level 1.52",
        f"loss 100 {last} 100",
        "ratio 1.5, regained 0.25, crossed at step 74",
        "Lower the learning rate",
        "trainproof rule TP203",
        "TP401 grad-explosion, steps 56 to 100: grad_norm 9.5 at step 56",
        "steps 40 to 42 were logged twice",
        "no eval/loss in the log TP501, TP502",
        "total_steps 100",
        "43 100 resume at step 43",
        "17 not a JSON object",
        "This logger may hide non-finite values of loss",
        "loss.diverged_ratio 1.5",
        "TP101, TP201, TP203",
    ):
        assert told in page.text, told
    assert all(attrs.get("scope") for attrs in page.all("th"))


def plots(html: str) -> list[str]:
    return re.findall(r'<svg class="plot".*?(?=</div>)', html, re.DOTALL)


def test_findings_are_drawn_where_they_concern() -> None:
    loss, gradients, rate = plots(render_html(diverged()))
    assert "<title>1: TP203 loss-diverged, steps 60 to 100</title>" in loss
    assert loss.count('class="cited"') == 2
    assert "<title>1: TP401 grad-explosion, steps 56 to 100</title>" in gradients, (
        "a related finding, by its chief's number"
    )
    assert 'class="band"' not in rate
    assert ">Learning rate<" in rate


def test_a_finding_that_cites_no_curve_is_drawn_on_the_first() -> None:
    lost = finding(evidence=(), first_step=10, last_step=20)
    first, second = plots(render_html(report(run({"loss": falling(), "lr": falling()}, [lost]))))
    assert 'class="band"' in first
    assert 'class="band"' not in second


def test_a_finding_over_the_whole_run_gets_a_bar_and_no_tint() -> None:
    plot = plots(render_html(report(run({"loss": falling()}, [finding(first_step=1, last_step=100)]))))[0]
    assert 'class="bar"' in plot
    assert 'class="band"' not in plot


def test_nonfinite_records_are_marked_in_place() -> None:
    plot = plots(render_html(dead()))[0]
    at = [float(x) for x in re.findall(r'class="nonfinite" x1="([\d.]+)%"', plot)]
    assert len(at) == 30
    assert at[0] == pytest.approx(100 * 70 / 99, abs=0.01)
    assert at[-1] == 100


def test_curve_ends_where_the_values_end() -> None:
    path = re.search(r'class="curve s0" d="([^"]*)"', plots(render_html(dead()))[0])
    assert path is not None
    x, *moves = re.findall(r"[Ml](-?\d+)", path[1])
    assert int(x) + sum(map(int, moves)) == round(2000 * 69 / 99)


def test_every_picture_has_a_name_and_a_description() -> None:
    html = render_html(dead())
    assert re.search(
        r'<title id="run-1-1-t">Loss</title><desc id="run-1-1-d">loss from [\d.]+ to [\d.]+ over steps', html
    )
    assert "not finite from step 71." in html
    assert len(Page(html).all("svg", "plot")) == 2


def test_a_long_list_of_findings_is_folded() -> None:
    page = Page(render_html(crowded()))
    cards = page.all("details", "finding")
    assert len(cards) == 200
    assert sum("open" in card for card in cards) == MOST_OPEN
    assert "more findings not drawn" in page.text


def test_several_runs_are_listed_worst_first_and_linked() -> None:
    page = Page(render_html(several()))
    links = [attrs["href"] for attrs in page.all("a")]
    assert links == ["#run-2", "#run-3", "#run-4", "#run-1", "#run-5"]
    assert {f"#{attrs['id']}" for attrs in page.all("section", "run")} == set(links)
    assert "5 runs 1 FAIL, 1 WARN, 1 SKIP, 2 PASS" in page.text


def test_the_folder_that_all_runs_share_is_told_once() -> None:
    page = Page(render_html(thirty()))
    assert "Runs in sweep/" in page.text
    assert "FAIL run-03/trainer_state.json 300" in page.text


def test_of_many_runs_only_the_worst_are_drawn() -> None:
    page = Page(render_html(thirty()))
    assert len(page.all("section", "run")) == 30
    assert len(page.all("svg", "plot")) == 6 * 2 + (MOST_DRAWN - 6)


def test_size_stays_within_its_budget() -> None:
    assert len(render_html(long_run()).encode()) < 150_000
    assert len(render_html(crowded()).encode()) < 300_000


def test_one_record_is_a_dot() -> None:
    page = Page(render_html(one_record()))
    assert [(dot["cx"], dot["cy"]) for dot in page.all("circle", "dot")] == [("50%", "50%"), ("50%", "50%")]


def test_same_report_same_bytes() -> None:
    assert render_html(diverged()) == render_html(diverged())


def test_icons_and_shapes_differ_besides_colour() -> None:
    fail = render_html(report(run({"loss": falling()}, [finding()])))
    warn = render_html(report(run({"loss": falling()}, [finding(Severity.WARN)])))
    shapes = [re.search(r'<rect class="chip"[^>]* rx="(\d)"', html) for html in (fail, warn)]
    assert [shape and shape[1] for shape in shapes] == ["2", "8"]
    icons = [re.search(r'<svg class="icon [A-Z]+"[^>]*>(.*?)</svg>', html) for html in (fail, warn)]
    assert len({icon[1] for icon in icons if icon}) == 2


def test_points_that_a_log_scale_cannot_hold_are_left_out() -> None:
    cited = (Evidence("loss", 3, -1.0, 3), Evidence("loss", 4, "NaN", 4))
    values = [1e-5, 1e5, 1.0, 1.0] * 20
    plot = plots(render_html(report(run({"loss": values}, [finding(evidence=cited)]))))[0]
    assert 'class="cited"' not in plot

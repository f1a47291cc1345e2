"""What a person sees: widths, colours, and that a session's text cannot take the terminal over."""

from __future__ import annotations

import io

import pytest

from pi_ls.core.jsonvalues import Json
from pi_ls.render import meter, tree_lines
from pi_ls.terminal import BOLD, Terminal, cells, counted, fit, pad, plain, wrap


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize(
    ("stream", "environ", "coloured"),
    [
        (Screen(), {}, True),
        (Screen(), {"NO_COLOR": "1"}, False),
        (Screen(), {"NO_COLOR": ""}, True),
        (Screen(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    stream: io.StringIO, environ: dict[str, str], coloured: bool
) -> None:
    assert Terminal(stream, environ).style("x", BOLD) == ("\x1b[1mx\x1b[0m" if coloured else "x")


def test_text_of_a_session_cannot_command_the_terminal() -> None:
    assert plain("a\x1b[2Jb\x07\n\tc\u202ed\ud83d") == "a\ufffd[2Jb\ufffd c\ufffdd\ufffd"


def test_wide_characters_count_twice_and_colours_not_at_all() -> None:
    assert cells("日本") == 4
    assert cells("\x1b[1mab\x1b[0m") == 2
    assert cells("e\u0301") == 1


def test_a_text_is_cut_to_a_width_by_what_it_takes_on_the_screen() -> None:
    assert fit("日本語", 6) == "日本語"
    assert fit("日本語", 5) == "日本…"
    assert fit("plain", 0) == ""


def test_columns_line_up() -> None:
    screen = io.StringIO()
    Terminal(screen, {}).table([("a", "日本"), ("bbb", "c")], right=(0,), indent=1)
    assert screen.getvalue() == "   a  日本\n bbb  c\n"
    assert pad("日本", 5) == "日本 "


def test_a_last_column_that_is_too_long_goes_on_below_itself_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    for stream, told in (
        (Screen(), "  a  not so\n     short\n"),
        (io.StringIO(), "  a  not so short\n"),
    ):
        Terminal(stream, {}).table([("a", "not so short")])
        assert stream.getvalue() == told


def test_a_text_is_broken_between_words_by_what_they_take_on_the_screen() -> None:
    assert wrap("日本 ab c", 6) == ["日本", "ab c"]
    assert wrap("a /very/long/name b", 5) == ["a", "/very/long/name", "b"]
    assert wrap("", 5) == [""]


def test_one_thing_is_not_told_as_several() -> None:
    assert [counted(number, "call") for number in (0, 1, 2_000)] == ["0 calls", "1 call", "2,000 calls"]
    assert [counted(number, "entry", "entries") for number in (1, 2)] == ["1 entry", "2 entries"]


def usage(percent: float | None) -> Json:
    tokens = None if percent is None else percent * 10
    return {
        "contextWindow": 1_000,
        "percent": percent,
        "tokens": tokens,
        "estimatedTokens": 100,
        "source": "measured",
    }


def test_a_meter_over_its_window_is_full_and_says_by_how_much() -> None:
    line = meter(usage(123.4), Terminal(io.StringIO(), {}))
    assert "░" not in line
    assert "123.4%" in line
    assert "1,234 of 1,000 tokens" in line


def test_a_meter_that_is_not_measured_says_that_it_is_an_estimate() -> None:
    line = meter(usage(None), Terminal(io.StringIO(), {}))
    assert "~10.0%" in line
    assert "about 100 of 1,000 tokens" in line
    assert "not measured yet" in line


def test_a_meter_without_a_window_says_why() -> None:
    assert "unknown" in meter({}, Terminal(io.StringIO(), {}))


def node(id: str, parent: str | None, *, children: int = 1, on_path: bool = True, leaf: bool = False) -> Json:
    return {
        "childCount": children,
        "id": id,
        "parentId": parent,
        "type": "message",
        "role": "user",
        "text": f"text of {id}",
        "tokens": 1,
        "onPath": on_path,
        "isLeaf": leaf,
    }


def test_a_talk_without_forks_is_drawn_flat() -> None:
    drawn = [line[10:22] for line in tree_lines([node("a", None), node("b", "a"), node("c", "b")], SCREEN)]
    assert len(set(drawn)) == 1


def test_each_branch_of_a_fork_has_its_rail() -> None:
    nodes = [
        node("a", None, children=2),
        node("b", "a", on_path=False),
        node("c", "b", children=0, on_path=False),
        node("d", "a"),
        node("e", "d", leaf=True),
    ]
    drawn = [line[len("a  ") :].split("user")[0].split()[1:] for line in tree_lines(nodes, SCREEN)]
    assert drawn == [["●"], ["├─○"], ["│", "○"], ["└─●"], ["◆"]]


def test_forks_within_forks_leave_room_for_what_was_said() -> None:
    deep = [node(str(n), str(n - 1) if n else None, children=2) for n in range(100)]
    lines = list(tree_lines(deep, SCREEN))
    assert max(cells(line) for line in lines) <= 100
    assert all(f"text of {n}" in line for n, line in enumerate(lines))


def test_a_line_of_the_tree_fits_the_terminal() -> None:
    long = {**node("a", None, leaf=True), "text": "日本" * 100, "label": "here"}
    (line,) = tree_lines([long], SCREEN)
    assert cells(line) <= 100
    assert "[here]" in line
    assert line.endswith("← leaf")


SCREEN = Terminal(io.StringIO(), {})

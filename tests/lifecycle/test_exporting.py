from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.lifecycle import exporting
from clawd.lifecycle.exporting import DECISIONS, METRICS, Account, csv_of, files_of, json_of, notes_of
from clawd.lifecycle.journal import Lines, lines_of
from tests.lifecycle import accounts
from tests.lifecycle.accounts import account, jsonl, metric


def read(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode(), newline="")))


@pytest.mark.parametrize(
    ("data", "rows", "unreadable", "torn"),
    [
        (b"", 0, 0, False),
        (b'{"a": 1}\n{"a": 2}\n', 2, 0, False),
        (b'{"a": 1}\n{"a": 2}', 2, 0, False),  # whole but for its line end
        (b'{"a": 1}\n{"a": ', 1, 0, True),
        (b'{"a": 1}\n\n  \n{"a": 2}\n', 2, 0, False),
        (b'{"a": 1}\nnonsense\n[1]\n"text"\n7\n{"a": 2}\n', 2, 4, False),
        (b'{"a": NaN}\n{"a": Infinity}\n{"a": 1e999}\n{"a": 1e9}\n', 1, 3, False),
        (b"[" * 100_000 + b"\n" + b'{"a":' * 100_000 + b"\n{}\n", 1, 2, False),
        (b'\xff\xfe\n{"a": 1}\n', 1, 1, False),
    ],
)
def test_every_line_that_can_be_read_is_a_row_and_the_others_are_counted(
    data: bytes, rows: int, unreadable: int, torn: bool
) -> None:
    found = lines_of(data)
    assert (len(found.rows), found.unreadable, found.torn) == (rows, unreadable, torn)


def test_each_format_has_a_row_for_each_line() -> None:
    whole = account(metrics=lines_of(jsonl(accounts.METRICS) + b'torn\n{"step_index'))
    found = files_of(whole, "csv")
    assert list(found) == ["metrics.csv", "decisions.csv"]
    assert [len(read(data)) for data in found.values()] == [4, 4]
    told = json.loads(files_of(whole, "json")["context.json"])
    assert (told["metrics"], told["decisions"], told["state"]) == (accounts.METRICS, accounts.DECISIONS, accounts.STATE)
    assert told["unreadable"] == {"metrics": 1, "decisions": 0}
    assert (told["schema"], told["session"], told["group"]) == (1, "mmkr:agent-1", "main")
    assert notes_of(whole) == ["1 line of metrics.jsonl cannot be read"]
    page = files_of(whole, "html")["context.html"].decode()
    assert page.count("<tr>") == 4 + 4 + 2 and "1 line of metrics.jsonl cannot be read." in page


def test_without_any_file_there_are_headers_and_a_page_that_says_so() -> None:
    empty = Account("a", "main")
    assert [read(data) for data in files_of(empty, "csv").values()] == [[], []]
    assert json.loads(json_of(empty))["state"] is None
    assert "Its state.json is missing" in files_of(empty, "html")["context.html"].decode()


def test_columns_stand_in_their_order_whatever_the_rows_have() -> None:
    rows = [{"zzz": 1, "session_id": "s", "aaa": {"x": 1, "y": None}}, {"ts": "t", "event": "turn", "confirm": None}]
    header = csv_of(rows, METRICS).decode().split("\r\n")[0].split(",")
    assert header == [*METRICS, "aaa_x", "zzz"]
    assert csv_of([], DECISIONS).decode() == ",".join(DECISIONS) + "\r\n"
    assert csv_of(accounts.DECISIONS, DECISIONS).decode().split("\r\n")[0] == ",".join(DECISIONS)


def test_a_confirmation_has_three_columns() -> None:
    row = read(csv_of(accounts.DECISIONS, DECISIONS))[3]
    assert [row[f"confirm_{name}"] for name in ("required", "granted", "by")] == ["true", "true", "'@Ada"]


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_a_text_that_a_spreadsheet_would_run_is_none(first: str) -> None:
    [row] = read(csv_of([{"event": f"{first}1+1", "agent_id": "a=b", "latency_ms": -7}], METRICS))
    assert (row["event"], row["agent_id"], row["latency_ms"]) == (f"'{first}1+1", "a=b", "-7")
    assert csv_of([{f"{first}x": 1}], ()).decode().splitlines()[0].strip('"').startswith("'")


def test_quotes_commas_and_line_ends_stay_in_their_cell() -> None:
    data = csv_of([{"event": 'a "b", c\r\nd\ne', "agent_id": "übung"}], METRICS)
    assert b'"a ""b"", c\r\nd\ne"' in data and "übung".encode() in data
    assert read(data)[0]["event"] == 'a "b", c\r\nd\ne'


def test_an_unknown_price_is_no_price() -> None:
    [row] = read(csv_of([metric(1, 1000, 1000, None)], METRICS))
    assert [row[f"{name}_cost_usd"] for name in ("input", "output", "total")] == ["", "", ""]
    told = json.loads(json_of(account(metrics=Lines([metric(1, 1000, 1000, None)]))))
    assert told["metrics"][0]["total_cost_usd"] is None


def test_a_known_price_is_exact() -> None:
    """1,000 tokens in at 3 dollars a million, 500 out at 15."""
    row = metric(1, 1500, 1500) | {
        "prompt_tokens": 1000,
        "completion_tokens": 500,
        "input_cost_usd": 3_000_000 / 1e9,
        "output_cost_usd": 7_500_000 / 1e9,
        "total_cost_usd": 10_500_000 / 1e9,
    }
    [cells] = read(csv_of([row, metric(2, 1, 1, 1e-9)][:1], METRICS))
    assert [cells[f"{name}_cost_usd"] for name in ("input", "output", "total")] == ["0.003", "0.0075", "0.0105"]
    whole = account(metrics=Lines([row]))
    assert json.loads(json_of(whole))["metrics"][0]["total_cost_usd"] == 0.0105
    page = files_of(whole, "html")["context.html"].decode()
    assert '<data value="0.0105">$0.0105</data>' in page and "<b>$0.0105</b><span>in all</span>" in page


def test_a_billionth_of_a_dollar_has_no_exponent() -> None:
    assert read(csv_of([metric(1, 1, 1, 1e-9)], METRICS))[0]["input_cost_usd"] == "0.000000001"


_VALUES = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
_TEXTS = st.text(st.characters(codec=None), max_size=20)
_ROWS = st.dictionaries(st.sampled_from([*METRICS, "extra", "=x"]), _VALUES | _TEXTS | st.lists(_TEXTS, max_size=2))


@settings(max_examples=60)
@given(st.lists(_ROWS, max_size=4))
def test_whatever_the_rows_are_every_format_can_be_read_again(rows: list[dict[str, Any]]) -> None:
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    whole = account(metrics=lines_of(data))
    cells = read(files_of(whole, "csv")["metrics.csv"])
    assert len(cells) == len(rows)
    numbers = (type(None), bool, int, float)
    texts = [c for row, line in zip(rows, cells, strict=True) for name, c in line.items() if
             name in row and not isinstance(row[name], numbers)]  # fmt: skip
    assert not [cell for cell in texts if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert json.loads(json_of(whole))["metrics"] == json.loads(json.dumps(rows))
    page = files_of(whole, "html")["context.html"].decode()
    assert page.count("<script") == 0 and page.endswith("</html>\n")


def test_a_format_is_one_of_three() -> None:
    assert exporting.FORMATS == ("csv", "json", "html")

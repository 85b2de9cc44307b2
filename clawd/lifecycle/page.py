"""One page that shows a session's context: it opens without a network, runs nothing and loads nothing. Pure.

Everything that somebody wrote is escaped, and what does not show in it is made visible. The policy in its head allows
its own style sheet, by hash, and nothing else. Each number stands there as it stands in the JSON, in `value`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape
from typing import Any

from clawd.lifecycle import exporting
from clawd.lifecycle.charts import charts
from clawd.lifecycle.exporting import DECISIONS, METRICS, Account
from clawd.lifecycle.journal import Line, Lines
from clawd.lifecycle.plots import svg
from clawd.lifecycle.stylesheet import STYLE
from clawd.text import made_visible

_HEADS = {
    "seq": "No.", "ts": "Time", "step_index": "Step", "event": "What", "prompt_tokens": "In",
    "completion_tokens": "Out", "cached_tokens": "Cached", "window_tokens": "Window", "total_tokens": "Tokens in all",
    "latency_ms": "Took (ms)", "method": "How",
    "input_cost_usd": "Cost in", "output_cost_usd": "Cost out", "total_cost_usd": "Cost", "agent_id": "Agent",
    "memory_namespace": "Memory", "action": "Decision", "trigger": "Why", "soft": "Soft", "hard": "Hard",
    "estimated": "Estimated", "policy": "Policy", "recall": "Recall", "confirm_required": "Asked",
    "confirm_granted": "Granted", "confirm_by": "By", "reason": "Reason",
}  # fmt: skip
_LEDGER = {
    "constraints": "Constraints", "blockers": "Blockers", "verified": "Verified", "decisions": "Decisions",
    "next_safe_action": "What is next",
}  # fmt: skip
_DECIDED = {"total_tokens": "Window"}  # what a decision was made by
_ABOUT = ("After each step: go on, compact, or hand over.", "What each took, and what its next prompt would hold.")
_TOLD_ABOVE = {"schema", "id", "ledger", "goal"}
_ALWAYS = {"action", "trigger", "total_cost_usd"}  # columns that stand there also where nothing is known
_LONG = 32  # characters of a cell that are broken into lines
_PLACES = 9  # of a number with a fraction: a billionth of a dollar
_MISSING = '<span class="none" title="not known">–</span>'


def page_of(account: Account) -> str:
    """The whole page."""
    state = account.state or {}
    ledger = state["ledger"] if isinstance(state.get("ledger"), Mapping) else {}
    goal = _texts(ledger.get("goal")) or _texts(state.get("goal"))
    plots = "".join(_figure(each) for each in charts(account))
    return "\n".join(
        (
            head_of(f"{account.session} – context"),
            f'<header>\n<p class="kind">The context of a session</p>\n<h1>{_text(account.session)}</h1>',
            f'<p class="goal">{_text(goal[0])}</p>' if goal else "",
            f'<p class="facts">{_facts(account, state)}</p>\n</header>\n<main>',
            _figures(account, state),
            f'<section aria-label="Plots" class="plots">{plots}</section>',
            _held(ledger),
            _table("Decisions", _ABOUT[0], account.decisions, DECISIONS, _HEADS | _DECIDED),
            _table("Steps", _ABOUT[1], account.metrics, METRICS),
            _rest(state),
            f"</main>\n<footer>{_notes(account)}</footer>\n</body>\n</html>\n",
        )
    )


def head_of(title: str) -> str:
    """The beginning of a page, up to its body."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">',
            f'<link rel="icon" href="data:,">\n<title>{_text(title)}</title>',
            f"<style>{STYLE}</style>\n</head>\n<body>",
        )
    )


def _text(value: Any) -> str:
    return escape(made_visible(exporting.word(value)))


def _value(name: str, value: Any) -> str:
    """A value for people, that of the JSON beside it where it looks different there."""
    if value is None:
        return _MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    digits = exporting.number(value)
    if digits is not None:
        shown = _shown(Decimal(digits)) if name not in ("seq", "step_index") else digits
        return f'<data value="{digits}">{"$" if name.endswith("usd") else ""}{shown}</data>'
    if name in ("ts", "updated_at") and isinstance(value, str):
        day, t, clock = value.partition("T")
        return f'<time datetime="{escape(value)}">{_text(f"{day} {clock[:8]}" if t else value)}</time>'
    return _text(value)


def _shown(value: Decimal) -> str:
    """A number as people read it; of a fraction no more than counts."""
    text = f"{value:,.{_PLACES}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _facts(account: Account, state: Mapping[str, Any]) -> str:
    status = state.get("status")
    told = [f'<span class="status">{_text(status)}</span>'] if status else []
    if state.get("stopped_reason"):
        told.append(f"because: {_text(state['stopped_reason'])}")
    told.append(f"group {_text(account.group)}")
    told += [f"{name} {_text(state[key])}" for name, key in (("profile", "profile"),) if state.get(key)]
    return " · ".join(told)


def _figures(account: Account, state: Mapping[str, Any]) -> str:
    """What one wants to know first, in large letters."""
    window, soft, hard = (state.get(name) for name in ("window_tokens", "soft", "hard"))
    known = [row.get("total_cost_usd") for row in account.metrics.rows]
    costs = [Decimal(digits) for each in known if (digits := exporting.number(each)) is not None]
    if len(costs) == len(known) and costs:
        cost, beneath = f"${_shown(sum(costs, Decimal(0)))}", "in all"
    else:
        cost = f"${_shown(sum(costs, Decimal(0)))}" if costs else "–"
        beneath = f"known of {len(costs):,} of {len(known):,} steps" if costs else "nobody knows the price"
    recall = state.get("last_recall")
    cards = [
        ("Window", _value("", window), f"tokens; soft {_value('', soft)}, hard {_value('', hard)}"),
        ("Tokens in all", _value("", state.get("cumulative_tokens")), "went in and out"),
        ("Steps", _value("", state.get("step_index")), f"{len(account.decisions.rows):,} decisions"),
        ("Compactions", _value("", state.get("compact_count")), f"last recall {_value('', recall)}"),
        ("Cost", cost, beneath),
    ]
    shown = (f"<div><dt>{name}</dt><dd><b>{large}</b><span>{small}</span></dd></div>" for name, large, small in cards)
    return f'<dl class="figures">{"".join(shown)}</dl>'


def _figure(chart: Any) -> str:
    plot, key, told = chart
    body = f'<div class="plot">{svg(plot)}</div>' if plot is not None else f'<p class="empty">{escape(told)}</p>'
    marks = "".join(f'<span class="key {css}"><i></i>{escape(name)}</span>' for css, name in key)
    return f"<figure><figcaption>{escape(chart.title)}{marks}</figcaption>{body}</figure>"


def _held(ledger: Mapping[str, Any]) -> str:
    """What the session holds on to."""
    lists = [
        f"<div><h3>{name}</h3><ul>{''.join(f'<li>{_text(each)}</li>' for each in found)}</ul></div>"
        for key, name in _LEDGER.items()
        if (found := _texts(ledger.get(key)))
    ]
    return f'<section class="held"><h2>What it holds on to</h2><div>{"".join(lists)}</div></section>' if lists else ""


def _texts(value: Any) -> list[str]:
    """The texts of what is pinned: one, several, or objects that have one each."""
    found = value if isinstance(value, list) else [value]
    texts = (each.get("text") if isinstance(each, Mapping) else each for each in found)
    return [text for text in texts if isinstance(text, str) and text]


def _table(name: str, told: str, lines: Lines, known: Sequence[str], heads: Mapping[str, str] = _HEADS) -> str:
    flat = [exporting.flattened(row) for row in lines.rows]
    columns = [
        column
        for column in exporting.columns_of(flat, known)
        if column != "session_id"
        and (column in _ALWAYS & set(known) or any(row.get(column) is not None for row in flat))
    ]
    caption = f"<caption>{name} <small>{len(flat):,}. {told}</small></caption>"
    head = "".join(f'<th scope="col">{_text(heads.get(column, column))}</th>' for column in columns)
    body = "\n".join(_row(row, columns) for row in flat)
    table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<section class="rows" tabindex="0" role="region" aria-label="{name}">{table}</section>'


def _row(row: Line, columns: Iterable[str]) -> str:
    cells = []
    for column in columns:
        value = row.get(column)
        css = "n" if exporting.number(value) is not None else ""
        if isinstance(value, str):
            marked = column == "action" and value in ("compact", "handoff")
            css = value if marked else "long" if len(value) > _LONG and column != "ts" else ""
        cells.append(f"<td{f' class={chr(34)}{css}{chr(34)}' if css else ''}>{_value(column, value)}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _rest(state: Mapping[str, Any]) -> str:
    """Everything else that its state says."""
    rows = [(key, value) for key, value in exporting.flattened(dict(state)).items() if value is not None]
    shown = [
        f"<div><dt>{_text(key.replace('_', ' '))}</dt><dd>{_value(key, value)}</dd></div>"
        for key, value in rows
        if key not in _TOLD_ABOVE and not key.startswith("ledger_")
    ]
    return f'<section class="state"><h2>State</h2><dl>{"".join(shown)}</dl></section>' if shown else ""


def _notes(account: Account) -> str:
    told = " ".join(f"{escape(each[0].upper() + each[1:])}." for each in exporting.notes_of(account))
    return f"{told and f'<p>{told}</p>'}<p>Written by <code>clawd context export</code>. It loads nothing.</p>"

"""The law of the ledger: which state may become which, and by what event. Pure; every change of state asks here."""

from __future__ import annotations

from collections.abc import Iterable

from clawd.errors import IllegalMove

Table = dict[tuple[str, str], str]

INBOUND: Table = {
    ("received", "claim"): "claimed",
    ("received", "hold"): "held",
    ("held", "release"): "received",
    ("claimed", "requeue"): "received",
    ("claimed", "hold"): "held",
    ("claimed", "answer"): "answered",
    ("received", "answer"): "answered",  # a command: the daemon answers it itself
    ("answered", "deliver"): "delivered",
    ("delivered", "record"): "recorded",
    ("claimed", "fail"): "failed",
    ("claimed", "stop"): "stopped",
    ("received", "stop"): "stopped",
    ("held", "stop"): "stopped",
    ("received", "withdraw"): "withdrawn",
    ("held", "withdraw"): "withdrawn",
    ("received", "expire"): "stale",
    ("held", "expire"): "stale",
    ("failed", "retry"): "received",
}

WAKE: Table = {
    ("pending", "take"): "taken",
    ("taken", "close"): "closed",
    ("taken", "give_back"): "pending",
    ("pending", "drop"): "dropped",
    ("pending", "close"): "closed",  # stopped or failed before it was handed out
}

TURN: Table = {
    ("queued", "claim"): "claimed",
    ("claimed", "requeue"): "queued",
    ("claimed", "answer"): "answered",
    ("claimed", "stop"): "stopped",
    ("queued", "stop"): "stopped",
    ("held", "stop"): "stopped",
    ("claimed", "fail"): "failed",
    ("queued", "hold"): "held",
    ("claimed", "hold"): "held",  # the backend does not say whether the sandbox is dead
    ("held", "release"): "queued",
    ("queued", "join"): "joined",  # the live turn of its session took its wakes
    ("queued", "withdraw"): "withdrawn",  # what it was to answer was deleted, or it was to go on as another will
    ("held", "withdraw"): "withdrawn",
}

DELIVERY: Table = {
    ("draft", "freeze"): "pending",
    ("draft", "cancel"): "cancelled",
    ("pending", "send"): "sending",
    ("pending", "cancel"): "cancelled",
    ("pending", "fail"): "failed",
    ("sending", "arrive"): "sent",
    ("sending", "bounce"): "pending",
    ("sending", "doubt"): "unknown",
    ("sending", "fail"): "failed",
    ("unknown", "fail"): "failed",  # its channel is not there any more
    ("unknown", "find"): "sent",
    ("unknown", "miss"): "pending",  # the platform can tell, and it has not got it
    ("unknown", "repeat"): "resent",
    ("resent", "bounce"): "unknown",  # the repeat itself surely did not arrive
    ("resent", "fail"): "failed",  # and never will: nobody knows whether the first did
}

RUN: Table = {
    ("starting", "hello"): "ready",
    ("ready", "take"): "busy",
    ("busy", "take"): "busy",
    ("busy", "park"): "ready",
    ("ready", "park"): "ready",
    ("ready", "pause"): "paused",
    ("paused", "unpause"): "ready",
    ("starting", "drain"): "draining",
    ("ready", "drain"): "draining",
    ("busy", "drain"): "draining",
    ("paused", "drain"): "draining",
    ("draining", "park"): "draining",
    ("draining", "take"): "draining",
    ("starting", "end"): "gone",
    ("ready", "end"): "gone",
    ("busy", "end"): "gone",
    ("paused", "end"): "gone",
    ("draining", "end"): "gone",
}

RESERVATION: Table = {
    ("open", "settle"): "settled",
    ("open", "release"): "released",  # surely not sent, or surely not billed
    ("open", "assume"): "assumed",  # a crash came between; what was reserved counts
}

QUESTION: Table = {
    ("open", "answer"): "answered",
    ("open", "expire"): "expired",
    ("open", "withdraw"): "withdrawn",
}

APPROVAL: Table = {
    ("open", "approve"): "approved",
    ("open", "deny"): "denied",
    ("open", "expire"): "expired",
    ("open", "void"): "void",  # what it rests on has changed
    ("approved", "begin"): "executing",
    ("approved", "void"): "void",
    ("executing", "finish"): "done",
    ("executing", "fail"): "failed",
}

FIRING: Table = {
    ("due", "fire"): "fired",
    ("due", "skip"): "skipped",  # the run before is not over, or its check said that there is nothing to do
    ("due", "fail"): "failed",  # its check failed
    ("due", "miss"): "missed",
    ("fired", "run"): "ran",
    ("fired", "run_late"): "late",
    ("fired", "fail"): "failed",
    ("fired", "skip"): "skipped",  # its turn was stopped
}

INJECTED: Table = {
    ("open", "complete"): "whole",  # its results came, or will not come
    ("whole", "record"): "recorded",
}

TABLES: dict[str, Table] = {
    "inbound": INBOUND,
    "wake": WAKE,
    "turn": TURN,
    "delivery": DELIVERY,
    "run": RUN,
    "reservation": RESERVATION,
    "question": QUESTION,
    "approval": APPROVAL,
    "firing": FIRING,
    "injected": INJECTED,
}

# A delivery in one of these needs nothing more from us.
DECIDED = frozenset({"sent", "resent", "failed", "cancelled"})
# Faults of a turn's own before it fails for good.
MAX_ATTEMPTS = 3


def move(table: str, state: str, event: str) -> str:
    """The state after `event`. Raises IllegalMove when the law has no such move: a defect of ours."""
    try:
        return TABLES[table][state, event]
    except KeyError:
        raise IllegalMove(f"{table}: no move {event!r} from {state!r}") from None


def after_fault(faults: int) -> str:
    """What a turn does after its `faults`-th fault of its own: `requeue` or `fail`."""
    return "fail" if faults >= MAX_ATTEMPTS else "requeue"


def inbound_events(state: str, deliveries: Iterable[str], recorded: bool) -> list[str]:
    """The events that an inbound in `state` is due, given its turn's deliveries and whether the turn is recorded."""
    events = []
    if state == "answered" and all(each in DECIDED for each in deliveries):
        events.append("deliver")
        state = "delivered"
    if state == "delivered" and recorded:
        events.append("record")
    return events


def delivery_after_doubt(tells: bool, found: bool) -> str:
    """What to do with a send whose answer was lost: `find` it, `miss` it (it never arrived), or `repeat` it, marked."""
    if tells:
        return "find" if found else "miss"
    return "repeat"

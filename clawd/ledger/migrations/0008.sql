-- What programs beside the daemon put into sessions.

-- One inject. Its blocks are here until they are in the session's file; its key stays, to know it again.
CREATE TABLE injected (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp TEXT NOT NULL REFERENCES grp (name),
    session TEXT NOT NULL REFERENCES session (id),
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    joined INTEGER REFERENCES injected (id),  -- it brought results alone: of the calls of this one, which has its blocks
    blocks TEXT NOT NULL,                     -- JSON: [{key, role, content, at, tool_calls?, tool_call_id?}]
    made TEXT NOT NULL,
    UNIQUE (session, key)
) STRICT;
CREATE INDEX injected_waiting ON injected (session, id) WHERE state <> 'recorded' AND joined IS NULL;
CREATE INDEX injected_joined ON injected (joined) WHERE joined IS NOT NULL;

ALTER TABLE session ADD COLUMN taint REAL NOT NULL DEFAULT 1.0;  -- the lowest trust of what was put into it from outside

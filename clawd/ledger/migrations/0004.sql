-- Money: what model calls may cost before they are sent, and what they did cost. Amounts are nano-dollars, or NULL
-- when the price is unknown.
CREATE TABLE reservation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp TEXT NOT NULL,
    service TEXT NOT NULL,
    turn INTEGER,                             -- NULL when several were live and nothing said which
    session TEXT,
    model TEXT NOT NULL,
    state TEXT NOT NULL,
    day TEXT NOT NULL, month TEXT NOT NULL,   -- the group's own, like 2026-11-29 and 2026-11
    tokens INTEGER NOT NULL,                  -- reserved while open, then what counts
    nanos INTEGER,
    input INTEGER, output INTEGER, cached INTEGER,
    estimated INTEGER NOT NULL DEFAULT 0,
    made TEXT NOT NULL
) STRICT;
-- With what is summed: a limit is looked at before each call, and must not cost more with every call of the month.
CREATE INDEX reservation_grp ON reservation (grp, month, day, state, tokens, nanos);
CREATE INDEX reservation_service ON reservation (service, day, state, tokens, nanos);
CREATE INDEX reservation_turn ON reservation (turn) WHERE turn IS NOT NULL;
CREATE INDEX reservation_open ON reservation (id) WHERE state = 'open';
CREATE TABLE budget_raise (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp TEXT NOT NULL,
    period TEXT NOT NULL,                     -- a day or a month
    nanos INTEGER,
    tokens INTEGER,
    made TEXT NOT NULL
) STRICT;
CREATE INDEX budget_raise_grp ON budget_raise (grp, period);

-- Questions of an agent. The answer is a wake like any other.
CREATE TABLE question (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn INTEGER NOT NULL REFERENCES turn (id),
    grp TEXT NOT NULL,
    session TEXT NOT NULL,
    text TEXT NOT NULL,
    choices TEXT NOT NULL,                    -- JSON: list of texts; empty for an open question
    note TEXT NOT NULL,                       -- the agent's own, given back with the answer
    state TEXT NOT NULL,
    expires TEXT NOT NULL,
    wake INTEGER REFERENCES wake (id)
) STRICT;
CREATE INDEX question_open ON question (session) WHERE state = 'open';

-- Jobs: what a room asked a model for. Text leaves with its turn's.
CREATE TABLE job (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL UNIQUE,                 -- the room's own name for it: asked twice, it is one job
    prompt TEXT NOT NULL,
    turn INTEGER REFERENCES turn (id),
    answer TEXT
) STRICT;

-- Whether somebody else than the owner ever spoke in a group: its messages are forgotten, this is not.
ALTER TABLE grp ADD COLUMN others INTEGER NOT NULL DEFAULT 0;
UPDATE grp SET others = 1 WHERE EXISTS (SELECT 1 FROM inbound WHERE grp = grp.name AND role <> 'owner');

ALTER TABLE turn ADD COLUMN choice TEXT;      -- JSON: engine, model, effort of this turn alone
ALTER TABLE wake ADD COLUMN text TEXT;        -- of wakes without a message: JSON, parts like those of inbound
ALTER TABLE effect ADD COLUMN attempt INTEGER; -- the last attempt that has surely been given the result
ALTER TABLE delivery ADD COLUMN target TEXT;  -- the platform's id of the message that a reaction is put on

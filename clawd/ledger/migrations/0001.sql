-- The tables of messages, turns, runs and deliveries. Order comes from the integer keys, never from a time.
CREATE TABLE grp (
    name TEXT PRIMARY KEY,
    folder TEXT NOT NULL UNIQUE,
    number INTEGER NOT NULL UNIQUE,           -- the group's uid is 64000 + number, for ever
    authority TEXT NOT NULL DEFAULT 'owner',  -- what its work tree has fallen to
    taint REAL NOT NULL DEFAULT 1.0,
    made TEXT NOT NULL
) STRICT;

CREATE TABLE session (
    id TEXT PRIMARY KEY,
    base TEXT NOT NULL,
    segment INTEGER NOT NULL,
    grp TEXT NOT NULL REFERENCES grp (name),
    stem TEXT NOT NULL,                       -- file name without .md
    turns INTEGER NOT NULL DEFAULT 0,         -- turns ever queued: the next one's ordinal
    served INTEGER NOT NULL DEFAULT 0,        -- when it was last claimed for, in claims
    made TEXT NOT NULL,
    UNIQUE (base, segment)
) STRICT;
CREATE INDEX session_grp ON session (grp);

CREATE TABLE turn (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp TEXT NOT NULL REFERENCES grp (name),
    session TEXT NOT NULL REFERENCES session (id),
    ordinal INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 1,
    faults INTEGER NOT NULL DEFAULT 0,
    run TEXT,
    worker INTEGER,
    stop_requested INTEGER NOT NULL DEFAULT 0,
    authority TEXT NOT NULL,
    taint REAL NOT NULL,
    held TEXT,
    retry_of INTEGER REFERENCES turn (id),
    base_steps INTEGER NOT NULL DEFAULT 0,    -- steps taken over from `retry_of`, recorded with it
    channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL,
    queued_at TEXT NOT NULL,
    claimed_at TEXT,
    ended_at TEXT,
    recorded_at TEXT,
    final TEXT,                               -- JSON: text, files, stop_reason, model, notes
    error TEXT,
    engine TEXT, model TEXT, backend TEXT,
    input INTEGER, output INTEGER, cached INTEGER, usd REAL,
    window_tokens INTEGER, cumulative_tokens INTEGER
) STRICT;
CREATE INDEX turn_open ON turn (session, id) WHERE recorded_at IS NULL;
CREATE INDEX turn_open_grp ON turn (grp, state) WHERE recorded_at IS NULL;
CREATE INDEX turn_run ON turn (run) WHERE state = 'claimed';

CREATE TABLE inbound (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL,
    kind TEXT NOT NULL,
    platform_id TEXT NOT NULL,
    rev INTEGER NOT NULL,
    parts TEXT NOT NULL,                      -- JSON: [{kind, origin, text, sender, name}]
    sender TEXT NOT NULL,
    role TEXT NOT NULL,
    at TEXT NOT NULL,
    received TEXT NOT NULL,
    grp TEXT NOT NULL,
    session TEXT NOT NULL,
    turn INTEGER REFERENCES turn (id),
    state TEXT NOT NULL,
    reason TEXT,
    told INTEGER NOT NULL DEFAULT 0,
    UNIQUE (channel, account, chat, thread, kind, platform_id, rev)
) STRICT;
CREATE INDEX inbound_turn ON inbound (turn);
CREATE INDEX inbound_open ON inbound (state) WHERE state <> 'recorded';

CREATE TABLE wake (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    key TEXT NOT NULL UNIQUE,
    inbound INTEGER REFERENCES inbound (seq),
    authority TEXT NOT NULL,
    trust REAL NOT NULL,
    origin TEXT NOT NULL,
    state TEXT NOT NULL,
    why TEXT
) STRICT;
CREATE INDEX wake_inbound ON wake (inbound);

CREATE TABLE turn_wake (
    turn INTEGER NOT NULL REFERENCES turn (id),
    wake INTEGER NOT NULL REFERENCES wake (id),
    joined INTEGER NOT NULL DEFAULT 0,        -- the step at which it joined
    PRIMARY KEY (turn, wake)
) STRICT, WITHOUT ROWID;
CREATE INDEX turn_wake_wake ON turn_wake (wake);

CREATE TABLE step (
    turn INTEGER NOT NULL REFERENCES turn (id),
    n INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    message TEXT NOT NULL,                    -- JSON: an assistant or tool message
    shown TEXT NOT NULL,                      -- JSON: wakes that the model had seen
    PRIMARY KEY (turn, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE effect (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn INTEGER NOT NULL REFERENCES turn (id),
    tool TEXT NOT NULL,
    arguments TEXT NOT NULL,                  -- sha256 of the canonical JSON
    nth INTEGER NOT NULL,
    state TEXT NOT NULL,                      -- done or refused: both are committed with their result
    result TEXT NOT NULL,
    UNIQUE (turn, tool, arguments, nth)
) STRICT;

CREATE TABLE delivery (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn INTEGER REFERENCES turn (id),
    effect INTEGER REFERENCES effect (id),
    inbound INTEGER REFERENCES inbound (seq), -- the command that it answers
    session TEXT NOT NULL,
    channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL, thread TEXT NOT NULL,
    n INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    blob TEXT,
    name TEXT,
    nonce TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    platform_id TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    noted INTEGER NOT NULL DEFAULT 0,         -- a failure that the conversation has a note of
    made TEXT NOT NULL,
    seen INTEGER NOT NULL DEFAULT 0           -- the terminal's read receipt
) STRICT;
CREATE INDEX delivery_turn ON delivery (turn);
CREATE INDEX delivery_inbound ON delivery (inbound);
CREATE INDEX delivery_open ON delivery (channel, account, chat, id) WHERE state IN ('draft', 'pending', 'sending', 'unknown');
CREATE INDEX delivery_unseen ON delivery (chat, thread, id) WHERE seen = 0 AND channel = 'terminal';

CREATE TABLE run (
    id TEXT PRIMARY KEY,
    grp TEXT NOT NULL REFERENCES grp (name),
    backend TEXT NOT NULL,
    sandbox TEXT NOT NULL DEFAULT '',
    directory TEXT NOT NULL,
    uid INTEGER,
    token_hash TEXT NOT NULL,
    state TEXT NOT NULL,
    authority TEXT NOT NULL,
    taint REAL NOT NULL,
    since TEXT NOT NULL
) STRICT;
CREATE INDEX run_alive ON run (state) WHERE state <> 'gone';

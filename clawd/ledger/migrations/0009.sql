-- The context life cycle: what is known of each session's window, what it holds on to, and what became of it. The files
-- beside a session (state.json, decisions.jsonl, metrics.jsonl, manifests/) are written from here.

CREATE TABLE context (
    session TEXT PRIMARY KEY REFERENCES session (id),
    grp TEXT NOT NULL REFERENCES grp (name),
    status TEXT NOT NULL,
    stopped_reason TEXT,
    gate TEXT,                                 -- why no turn of it is handed out: seed, confirm, paused
    goal TEXT NOT NULL DEFAULT '',
    tag TEXT,
    profile TEXT, soft INTEGER, hard INTEGER,  -- its own; NULL: what the config says
    require_confirm TEXT,                      -- JSON: what asks first; NULL: what the group says
    by_hand INTEGER NOT NULL DEFAULT 0,        -- `clawd context run` steers it: nothing goes on by itself
    step_index INTEGER NOT NULL DEFAULT 0,     -- turns that were decided about
    window INTEGER NOT NULL DEFAULT 0,         -- tokens that its next prompt would hold
    cumulative INTEGER NOT NULL DEFAULT 0,     -- tokens that went in and out
    estimated INTEGER NOT NULL DEFAULT 0,
    nanos INTEGER,                             -- what it cost so far; NULL: not known
    taint REAL NOT NULL DEFAULT 1.0,           -- the lowest trust of its turns
    compact_count INTEGER NOT NULL DEFAULT 0,
    last_recall REAL,
    fruitless INTEGER NOT NULL DEFAULT 0,      -- compactions in a row that freed next to nothing
    failures INTEGER NOT NULL DEFAULT 0,       -- summaries in a row that came to nothing
    verify_failed INTEGER NOT NULL DEFAULT 0,  -- a summary left something out: it is to be handed over
    wanted TEXT,                               -- compact or handoff, asked for by hand
    confirm INTEGER,                           -- the number of the approval that it waits for
    declined TEXT,                             -- JSON {action, trigger, window, by}: what was said no to, and when
    refused TEXT,                              -- JSON {window, why, told}: it could not be handed over, and why
    confirmed_by TEXT,
    parent TEXT REFERENCES session (id),
    successor TEXT REFERENCES session (id),
    going_on INTEGER NOT NULL DEFAULT 0,       -- successors in a row that began by themselves
    agent_id TEXT, memory_namespace TEXT,
    manifest TEXT,                             -- JSON, of a session that was handed over
    manifest_file TEXT,                        -- its name below manifests/
    seed TEXT,                                 -- JSON of the manifest that it begins with, until that is in its file
    sealed_at TEXT,
    told TEXT,                                 -- JSON: what its chat was told once, and is not told again
    seq INTEGER NOT NULL DEFAULT 0,            -- of its last decision
    measured INTEGER NOT NULL DEFAULT 0,       -- of its last line of metrics.jsonl
    dirty INTEGER NOT NULL DEFAULT 1,          -- how often it changed since its files were written
    updated TEXT NOT NULL
) STRICT;
-- What is not done of them: `contexts.unfinished` asks in these words. Past a manifest a row is read page by page.
CREATE INDEX context_open ON context (session)
    WHERE dirty > 0 OR seed IS NOT NULL OR (manifest IS NOT NULL AND manifest_file IS NULL);
CREATE INDEX turn_claimed ON turn (session, id) WHERE claimed_at IS NOT NULL;
CREATE INDEX delivery_session ON delivery (session) WHERE state = 'pending';

-- What a session holds on to, whatever its window loses.
CREATE TABLE pinned (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL REFERENCES session (id),
    class TEXT NOT NULL,                       -- goal, verified, constraints, blockers, decisions, next_safe_action
    text TEXT NOT NULL,
    known_by TEXT NOT NULL,                    -- sha256 of the text without case and white space
    turn INTEGER,
    at TEXT NOT NULL,
    origin TEXT NOT NULL,
    trust REAL NOT NULL,
    inherited INTEGER NOT NULL DEFAULT 0,      -- from the session that handed over to this one
    UNIQUE (session, class, known_by)
) STRICT;

-- One compaction. What it says is here until it is in the session's file.
CREATE TABLE compaction (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL REFERENCES session (id),
    state TEXT NOT NULL,                       -- begun, asked, ready, written, failed
    cause TEXT NOT NULL,                       -- the trigger of its decision
    method TEXT,                               -- mask, summary, extract
    upto INTEGER,                              -- the last turn that it stands for; NULL: it masks alone
    masked INTEGER,                            -- the last turn whose tool output is left out
    job INTEGER,
    behind INTEGER,                            -- the turn of its file with which its block is appended
    text TEXT,
    ledger TEXT,                               -- JSON: what was pinned before it
    before INTEGER NOT NULL, after INTEGER,
    recall REAL,
    trust REAL NOT NULL DEFAULT 1.0,
    starts INTEGER, kept INTEGER,              -- hints: the bytes of its file where its block and what it keeps begin
    error TEXT,
    made TEXT NOT NULL, ended TEXT
) STRICT;
CREATE INDEX compaction_session ON compaction (session, id);
CREATE INDEX compaction_open ON compaction (session) WHERE state IN ('begun', 'asked', 'ready');

-- What the agent of a turn noted in it, until the turn is settled.
CREATE TABLE noted (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    turn INTEGER NOT NULL REFERENCES turn (id),
    notes TEXT NOT NULL                        -- JSON: texts by class
) STRICT;
CREATE INDEX noted_turn ON noted (turn);

-- Lines of decisions.jsonl and metrics.jsonl that are not in their file yet.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL REFERENCES session (id),
    kind TEXT NOT NULL,                        -- decisions, metrics
    line TEXT NOT NULL                         -- JSON, with `seq`
) STRICT;
CREATE INDEX journal_session ON journal (session, id);

-- What the engine `scripted` plays in a session of `clawd context run`: read from the owner's file when it begins, and
-- let go when it ends. No agent and no chat can choose it.
CREATE TABLE play (
    session TEXT PRIMARY KEY REFERENCES session (id),
    sha256 TEXT NOT NULL,                      -- of the file's bytes
    script TEXT NOT NULL                       -- JSON
) STRICT;

-- Channels of other people's platforms: where each was read up to, the chats that are known, messages with files,
-- albums and buttons, messages that grow, and what the owner is asked.

CREATE TABLE cursor (
    channel TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    at TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Chats in which somebody who may speak has spoken, as the platform tells of them.
CREATE TABLE chat (
    channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL,
    direct INTEGER NOT NULL,
    title TEXT NOT NULL,
    person TEXT,                              -- of a direct chat: whose, by people.toml
    sender TEXT,                              -- of a direct chat: whose, by their account
    seen TEXT NOT NULL,                       -- when somebody spoke there last
    PRIMARY KEY (channel, account, chat)
) STRICT, WITHOUT ROWID;

-- A chat that moved: what it is called here, for ever, and what the platform calls it now.
CREATE TABLE alias (
    channel TEXT NOT NULL, account TEXT NOT NULL,
    chat TEXT NOT NULL,
    now TEXT NOT NULL,
    PRIMARY KEY (channel, account, chat),
    UNIQUE (channel, account, now)
) STRICT, WITHOUT ROWID;

ALTER TABLE inbound ADD COLUMN name TEXT;         -- what the sender is called in people.toml
ALTER TABLE inbound ADD COLUMN direct INTEGER NOT NULL DEFAULT 1;
ALTER TABLE inbound ADD COLUMN reply_to TEXT;
ALTER TABLE inbound ADD COLUMN album TEXT;
ALTER TABLE inbound ADD COLUMN target TEXT;       -- of a button: the platform's id of the message that it is on
ALTER TABLE inbound ADD COLUMN value TEXT;        -- of a button
ALTER TABLE inbound ADD COLUMN attachments TEXT;  -- JSON: [{name, handle, size, mime, voice, file?}]; file: in inbox/
CREATE INDEX inbound_platform ON inbound (channel, account, chat, platform_id);
-- What is said of few rows is asked with every message: SQLite takes a partial index where a query repeats its words.
DROP INDEX inbound_open;
CREATE INDEX inbound_held ON inbound (channel, account, chat) WHERE state = 'held';
CREATE INDEX inbound_received ON inbound (kind) WHERE state = 'received';

ALTER TABLE delivery ADD COLUMN edits INTEGER REFERENCES delivery (id); -- the row whose message is given this text
ALTER TABLE delivery ADD COLUMN reply_to TEXT;    -- the platform's id of the message that it answers
ALTER TABLE delivery ADD COLUMN buttons TEXT;     -- JSON: [[label, value]]
CREATE INDEX delivery_edits ON delivery (edits) WHERE edits IS NOT NULL;
CREATE INDEX delivery_platform ON delivery (channel, account, chat, platform_id) WHERE platform_id IS NOT NULL;

CREATE TABLE approval (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    number INTEGER NOT NULL UNIQUE,           -- what people call it: nobody can guess it
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,                    -- what it is about: nobody is asked the same thing twice
    effect TEXT NOT NULL,                     -- canonical JSON: what will be done
    hash TEXT NOT NULL,                       -- sha256 of it, with what it rests on
    words TEXT NOT NULL,                      -- what the person was shown
    grp TEXT,
    turn INTEGER REFERENCES turn (id),        -- who asked for it, where a turn did
    person TEXT NOT NULL,                     -- who may decide
    channel TEXT NOT NULL, account TEXT NOT NULL, chat TEXT NOT NULL, -- where they were asked
    delivery INTEGER REFERENCES delivery (id), -- the message with the buttons
    secret TEXT NOT NULL,                     -- what its buttons' values hold
    state TEXT NOT NULL,
    expires TEXT NOT NULL,
    made TEXT NOT NULL,
    decided TEXT,                             -- when, and how: "2026-12-01T… by button", "… on the command line"
    decider TEXT,                             -- who decided, by people.toml; NULL for whoever reaches the host
    result TEXT
) STRICT;
CREATE INDEX approval_subject ON approval (kind, subject);

-- What conversations a group has, by their names: a chat may have had thousands of threads.
DROP INDEX session_grp;
CREATE INDEX session_grp ON session (grp, base);

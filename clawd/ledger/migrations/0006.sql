-- What wakes a group beside what is said: schedules, changed files, requests from outside; and who made their rules.

ALTER TABLE wake ADD COLUMN rule TEXT;            -- what made it: 'schedule:ID', 'watch:SHA256', 'webhook:NAME'
ALTER TABLE wake ADD COLUMN made TEXT;
CREATE INDEX wake_rule ON wake (rule, id) WHERE rule IS NOT NULL;
ALTER TABLE turn ADD COLUMN allowance TEXT;       -- JSON {usd, tokens}: what this turn may use, beside its group's budget
ALTER TABLE turn ADD COLUMN tools TEXT;           -- JSON: the host tools that are left to it by skills that it read

-- What an agent wrote that outlives its turn, by its content: it acts for nobody above that turn, and is trusted no
-- further, wherever it is found in its group. What has no row here a person made on the host.
CREATE TABLE authored (
    kind TEXT NOT NULL,                       -- schedule, watch, skill
    grp TEXT NOT NULL,
    sha256 TEXT NOT NULL,                     -- of the file, of the rule's canonical JSON, of the folder's manifest
    name TEXT NOT NULL,
    turn INTEGER,
    authority TEXT NOT NULL,
    taint REAL NOT NULL,
    made TEXT NOT NULL,
    PRIMARY KEY (kind, grp, sha256)
) STRICT, WITHOUT ROWID;

-- A schedule as it is in force. A file that is removed and made again is another generation.
CREATE TABLE schedule (
    grp TEXT NOT NULL,
    id TEXT NOT NULL,                         -- the file's name; '[heartbeat]' for that of group.toml
    generation INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    stamp TEXT NOT NULL,                      -- JSON: of the file when it was read; an equal one is not read again
    facts TEXT,                               -- JSON: what it says; of a file that is wrong, what it said before
    error TEXT,                               -- what is wrong with the file
    since TEXT NOT NULL,                      -- when it was taken up as it is; `every` counts from there
    next TEXT,                                -- when it is due next, as far as was known then; a copy of what follows
    last_due TEXT,
    failures INTEGER NOT NULL DEFAULT 0,      -- in a row
    paused TEXT,                              -- why it paused itself
    told INTEGER NOT NULL DEFAULT 0,          -- whether the owner knows that it paused itself
    gone TEXT,                                -- since when there is no such file
    PRIMARY KEY (grp, id, generation)
) STRICT, WITHOUT ROWID;

CREATE TABLE firing (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp TEXT NOT NULL,
    schedule TEXT NOT NULL,
    generation INTEGER NOT NULL,
    due TEXT NOT NULL,                        -- UTC, without jitter
    sha256 TEXT NOT NULL,
    state TEXT NOT NULL,
    fired TEXT,
    reason TEXT,
    wake INTEGER REFERENCES wake (id),
    turn INTEGER REFERENCES turn (id),
    UNIQUE (grp, schedule, generation, due)
) STRICT;
CREATE INDEX firing_open ON firing (grp, schedule) WHERE state IN ('due', 'fired');
CREATE INDEX firing_wake ON firing (wake) WHERE wake IS NOT NULL;
CREATE INDEX firing_turn ON firing (turn) WHERE turn IS NOT NULL;

-- What a watched tree was like when its group was last told of it. `rule` is the sha256 of the rule's paths and globs.
CREATE TABLE seen (
    grp TEXT NOT NULL,
    rule TEXT NOT NULL,
    path BLOB NOT NULL,                       -- beneath the group's folder, or /mnt/NAME/…; any bytes
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    sha256 BLOB,                              -- NULL for what is too large to be read
    PRIMARY KEY (grp, rule, path)
) STRICT, WITHOUT ROWID;
-- What is not like that any more, and was not told yet.
CREATE TABLE changed (
    grp TEXT NOT NULL,
    rule TEXT NOT NULL,
    path BLOB NOT NULL,
    size INTEGER,                             -- NULL: it is gone
    mtime_ns INTEGER,
    ino INTEGER,
    at REAL NOT NULL,                         -- since when it has been so, monotonic: 0 in an earlier life
    own INTEGER NOT NULL,                     -- whether a turn of the group itself did it
    event TEXT,                               -- added, modified, deleted: once it stood still and was read
    sha256 BLOB,
    PRIMARY KEY (grp, rule, path)
) STRICT, WITHOUT ROWID;
CREATE TABLE watching (
    grp TEXT NOT NULL,
    rule TEXT NOT NULL,
    wakes INTEGER NOT NULL,                   -- the number of its last one, that no other rule before it had
    rests TEXT,                               -- since when it has had its wakes of the hour, and that was told
    roots TEXT NOT NULL DEFAULT '{}',         -- JSON by root: {device, gone, told}; no device: it was not looked at yet
    PRIMARY KEY (grp, rule)
) STRICT, WITHOUT ROWID;

-- What came to a webhook: the same thing twice is one wake.
CREATE TABLE hook (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    grp TEXT NOT NULL,
    name TEXT NOT NULL,
    key TEXT NOT NULL,                        -- what its sender calls it, or the sha256 of its body
    at TEXT NOT NULL,
    file TEXT NOT NULL,                       -- its body, in the group's inbox
    wake INTEGER REFERENCES wake (id),
    UNIQUE (grp, name, key)
) STRICT;
CREATE INDEX hook_wake ON hook (wake) WHERE wake IS NOT NULL;

-- What of a group's memory the files do not say: where a memory was shown, and how far it was tended.

-- A memory was put before the model of a turn.
CREATE TABLE recalled (
    grp TEXT NOT NULL,
    memory TEXT NOT NULL,
    turn INTEGER NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (grp, memory, turn)
) STRICT, WITHOUT ROWID;
CREATE INDEX recalled_turn ON recalled (turn);

CREATE TABLE remembering (
    grp TEXT PRIMARY KEY,
    forgot TEXT,                              -- when something was forgotten last: what memory gave before is not shown
    reflected INTEGER NOT NULL DEFAULT 0,     -- the last turn that was looked at for a lesson
    consolidated TEXT,                        -- when its memories were last merged
    conflicts TEXT NOT NULL DEFAULT '[]',     -- JSON: pairs of ids that the owner was told of: they contradict each other
    told TEXT,                                -- when the owner was last told of what waits
    waits TEXT NOT NULL DEFAULT '[]'          -- JSON: ids of what they were told of
) STRICT, WITHOUT ROWID;

ALTER TABLE job ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;  -- what its answer says was done to files

-- What a memory may cite.
CREATE INDEX inbound_typed ON inbound (grp, seq) WHERE role = 'owner';

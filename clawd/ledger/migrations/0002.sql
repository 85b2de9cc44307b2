-- What a run is known by after a restart of the daemon.
ALTER TABLE run ADD COLUMN runner_pid INTEGER;    -- from the first hello
ALTER TABLE run ADD COLUMN runner_start INTEGER;  -- in clock ticks since boot: tells it from a later one of that pid
ALTER TABLE run ADD COLUMN parallel INTEGER;      -- the workers that the runner was told to have
ALTER TABLE run ADD COLUMN work TEXT;             -- the directory that is mounted as work/: device and inode
ALTER TABLE run ADD COLUMN home TEXT;             -- the home that it is of: device and inode of its state/

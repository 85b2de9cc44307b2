"""The agent's code as the sandbox sees it: the package `agent`, beside nothing of ours."""

from __future__ import annotations

import sys

from clawd.resources import shipped

sys.path.insert(0, str(shipped("containers")))

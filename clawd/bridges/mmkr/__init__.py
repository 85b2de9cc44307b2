"""mmkr's agents: a recorder of live ticks, traces made into sessions, capabilities made into skills."""

from clawd.bridges.mmkr.skills import capability_to_skill_metadata

__all__ = ["capability_to_skill_metadata"]

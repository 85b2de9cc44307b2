"""mmkr's agents: a recorder of live ticks, traces made into sessions, capabilities made into skills."""

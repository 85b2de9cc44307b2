"""The channel adapters. Each knows `clawd.channel` and `clawd.model` only."""

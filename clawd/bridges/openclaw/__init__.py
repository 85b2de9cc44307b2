"""Reading the home of OpenClaw, once Clawdbot and Moltbot: its state directory, `~/.openclaw`, or a workspace alone.

How its files lie, older layouts among it (repository openclaw/openclaw):
- `openclaw.json`, JSON5, once `clawdbot.json` and `moltbot.json`: `agents.list[].{id, default, workspace}`,
  `agents.defaults.workspace`, `bindings[].{agentId, match}`, `channels.*.{allowFrom, dmPolicy, …}`, `skills.entries`
  (docs/concepts/multi-agent.md, docs/gateway/security/index.md);
- a workspace, `workspace/` or `workspace-<agent>/` or wherever the config says: AGENTS.md, SOUL.md, IDENTITY.md,
  TOOLS.md, USER.md, HEARTBEAT.md, BOOT.md, BOOTSTRAP.md, MEMORY.md, which is free text, `memory/YYYY-MM-DD.md`
  (docs/concepts/agent-workspace.md);
- skills in `skills/` and `.agents/skills/` of a workspace, in `skills/` of the state directory, and in
  `agents/<id>/agent/workshop-skills/`, grouped in folders (docs/tools/skills.md);
- keys in `.env`, `credentials/`, `secrets.json`, `agents/<id>/agent/auth-profiles.json` of {profiles: {name: …}}, and
  whom a pairing let in in `credentials/<channel>-allowFrom.json` (docs/gateway/security/index.md,
  src/agents/auth-profiles/types.ts).
Sessions and jobs: see `kept`.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from clawd.arrivals.items import Brought
from clawd.bridges.foreign import secrets
from clawd.bridges.foreign.bringing import HEARTBEAT, MAIN, Bringing
from clawd.bridges.foreign.place import ANEW, JUNK, Place, rows, shown, table, text_of, within
from clawd.bridges.openclaw import kept
from clawd.errors import UsageError

_CONFIGS = ("openclaw.json", "clawdbot.json", "moltbot.json")
_STATES = (".openclaw", ".clawdbot", ".moltbot")
_INSTRUCTIONS = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "TOOLS.md")
_MEMORIES = ("MEMORY.md", "memory.md")
_PAGES = frozenset({*_INSTRUCTIONS, *_MEMORIES, "USER.md", HEARTBEAT})
_ONCE = {
    "BOOT.md": "it was read when its gateway started, which clawd does not do",
    "BOOTSTRAP.md": "it is the ritual of a first start",
}
_OF_A_WORKSPACE = frozenset({*_PAGES, *_ONCE, "memory", "skills", ".agents", ".openclaw"})
_OF_THE_STATE = frozenset(
    {*_CONFIGS, "agents", "cron", "skills", "credentials", "state", "workspace", "secrets.json", ".env"}
)
_OF_AN_AGENT = ("auth-profiles.json", "workshop-skills", "openclaw-agent.sqlite")
_SETTINGS = "settings and keys are entered anew"
_OWN_USE = "it is of its program's own use"
_PAIRED = re.compile(r"([\w-]{1,64})-allowFrom\.json")


def read(home: Path, group: str | None, *, now: datetime | None = None) -> Brought:
    """All that it has; with `group` all for that group, else its default agent for `main`, and each other one for a
    group of its own name. Raises UsageError for what is no such home."""
    bringing = Bringing(home, "openclaw", group, now)
    place = bringing.place
    config_file = next((name for name in _CONFIGS if place.kind(name) == "file"), "")
    if config_file or place.kind("agents") == "folder" or place.kind("workspace") == "folder":
        _state(bringing, config_file)
    elif any(place.kind(name) == "file" for name in _PAGES):
        _workspace(bringing, bringing.group(MAIN, main=True), "")
    else:
        raise UsageError(
            f"nothing of OpenClaw lies in {home}",
            hint="its home is ~/.openclaw, with openclaw.json, or a workspace with AGENTS.md",
        )
    return bringing.done()


def _state(bringing: Bringing, config_file: str) -> None:
    place = bringing.place
    config = table(place.json(config_file)) if config_file else {}
    if config:
        secrets.config(place, config_file, config)
        place.leave(config_file, _SETTINGS)
        _included(place, config)
    agents = _agents(bringing, config)
    workspaces = _workspaces(bringing, config, agents)
    for folder, agent in workspaces.items():
        _workspace(bringing, agents[agent], folder)
    main = bringing.group(MAIN, main=True)
    bringing.skills.folder(main, "skills", *(["all its agents had it"] if len(agents) > 1 else []))
    for agent, group in agents.items():
        bringing.skills.folder(group, f"agents/{agent}/agent/workshop-skills")
        kept.sessions(bringing, group, f"agents/{agent}")
    kept.jobs(bringing, agents, main)
    _bindings(bringing, config, agents)
    _credentials(bringing, agents)
    bringing.rest("cron", lambda name: name.startswith("jobs.json"), _OWN_USE)
    known = {folder.partition("/")[0] for folder in workspaces} | _OF_THE_STATE | JUNK
    bringing.rest("", lambda name: name in known or name.startswith(".env"), _OWN_USE)


def _included(place: Place, config: dict[str, Any]) -> None:
    """The keys of files that the config includes."""
    for _, name, _, value in secrets.entries(config):
        for each in (value if isinstance(value, list) else [value]) if name == "$include" else []:
            path = place.inside(text_of(each), _STATES) or text_of(each).removeprefix("./")
            if place.kind(path):
                secrets.config(place, path, place.json(path))
                place.leave(path, _SETTINGS)


def _agents(bringing: Bringing, config: dict[str, Any]) -> dict[str, str]:
    """The agents' groups by their ids, the default one's first: it is `main`."""
    listed = [each for each in rows(table(config.get("agents")).get("list")) if text_of(each.get("id"))]
    entries = table(table(config.get("agents")).get("entries"))  # as newer versions have them
    listed += [{"id": id, **table(each)} for id, each in entries.items()]
    ids = [text_of(each["id"]) for each in listed]
    default = next((text_of(each["id"]) for each in listed if each.get("default") is True), ids[0] if ids else MAIN)
    found = [name for name in bringing.place.folders("agents") if name not in ids]
    found += [name.removeprefix("workspace-") for name in bringing.place.folders("") if name.startswith("workspace-")]
    if MAIN not in ids and default != MAIN and MAIN in found:
        ids.append(MAIN)  # an agent that the config no longer has: its group is no other's
    agents = {default: bringing.group(default, main=True)}
    for id in [*ids, *found]:
        if id not in agents:
            agents[id] = bringing.group(id)
    return agents


def _workspaces(bringing: Bringing, config: dict[str, Any], agents: dict[str, str]) -> dict[str, str]:
    """The workspaces that lie in the home, each with its agent."""
    place = bringing.place
    default = next(iter(agents))
    wanted = {default: text_of(table(table(config.get("agents")).get("defaults")).get("workspace"))}
    wanted[default] = wanted[default] or text_of(table(config.get("agent")).get("workspace"))
    settings = table(config.get("agents"))
    entries = {id: table(each) for id, each in table(settings.get("entries")).items()}
    for each in [*rows(settings.get("list")), *({"id": id, **one} for id, one in entries.items())]:
        if text_of(each.get("workspace")):
            wanted[text_of(each.get("id"))] = text_of(each["workspace"])
    found = {"workspace": default} if place.kind("workspace") == "folder" else {}
    for name in place.folders(""):
        if name.startswith("workspace-"):
            found[name] = name.removeprefix("workspace-")
    for agent, path in wanted.items():
        inside = place.inside(path, _STATES) if path else None
        if inside and place.kind(inside) == "folder":
            found[inside] = agent if agent in agents else default
        elif path and not inside:
            place.elsewhere(path, agents.get(agent, agents[default]))
    return found


def _workspace(bringing: Bringing, group: str, folder: str) -> None:
    place = bringing.place
    for name in _INSTRUCTIONS:
        bringing.pages.instructions(group, within(folder, name))
    bringing.pages.profile(group, within(folder, "USER.md"))
    bringing.heartbeat(group, within(folder, HEARTBEAT))
    names = place.names(folder)
    for name in _MEMORIES:
        if name in names:
            bringing.pages.memory(group, within(folder, name), "MEMORY.md")
    bringing.memories(group, within(folder, "memory"))
    for skills in ("skills", ".agents/skills"):
        bringing.skills.folder(group, within(folder, skills))
    for name, why in _ONCE.items():
        if name in names:
            place.leave(within(folder, name), why)
    known = _OF_A_WORKSPACE | secrets.credentials(place, folder) | JUNK
    bringing.rest(folder, lambda name: name in known, "OpenClaw reads it on demand alone")


def _bindings(bringing: Bringing, config: dict[str, Any], agents: dict[str, str]) -> None:
    for binding in rows(config.get("bindings")):
        match, agent = table(binding.get("match")), text_of(binding.get("agentId"))
        peer = table(match.get("peer"))
        parts = (match.get("channel"), match.get("accountId"), peer.get("kind"), peer.get("id"), match.get("guildId"))
        chat = " ".join(shown(text_of(part)) for part in parts if text_of(part))
        if chat and agent in agents:
            bringing.place.brought.chats.append(f"{chat} belonged to {shown(agent)}, the group {agents[agent]}")


def _credentials(bringing: Bringing, agents: dict[str, str]) -> None:
    """Names of what is kept secret, and whom a pairing let in."""
    place, brought = bringing.place, bringing.place.brought
    for name in place.names(""):
        if name.startswith(".env"):
            secrets.credential(place, name)
    if place.kind("secrets.json"):
        secrets.config(place, "secrets.json", {"secrets": place.json("secrets.json")})
        place.leave("secrets.json", ANEW)
    for path in place.files("credentials"):
        if match := _PAIRED.fullmatch(path.rpartition("/")[2]):
            listed = table(place.json(path)).get("allowFrom")
            brought.allowed += secrets.allowed({match[1]: {"allowFrom": listed}})
        else:
            secrets.credential(place, path)
    for agent in agents:
        path = f"agents/{agent}/agent/auth-profiles.json"
        for profile in table(table(place.json(path)).get("profiles")):
            secrets.told(place, secrets.segment(profile), path)
        if place.kind(path):
            place.leave(path, ANEW)
        models = f"agents/{agent}/agent/models.json"
        if place.kind(models):
            secrets.config(place, models, place.json(models))
        bringing.rest(f"agents/{agent}", lambda name: name in ("agent", "sessions"), _OWN_USE)
        bringing.rest(f"agents/{agent}/agent", lambda name: name.startswith(_OF_AN_AGENT), _OWN_USE)

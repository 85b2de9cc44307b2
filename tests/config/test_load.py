"""Reading config: what is right is read, what is wrong is said with its place and what helps."""

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from clawd.config.engines import served
from clawd.config.group import GroupConfig, not_built
from clawd.config.home import Home
from clawd.config.load import check_file, check_home, load_config, load_group, machine_zone, merged, parse, parse_group
from clawd.config.models import models
from clawd.config.mounts import Allowlist
from clawd.config.places import line_of
from clawd.config.schema import Config
from clawd.errors import ConfigError, NotFound
from clawd.resources import shipped
from clawd.schedules.file import ScheduleFile
from clawd.usage.prices import price_of

ROOT = Path(__file__).parents[2]

EVERYTHING = """
schema = 1
[claw]
name = "Ada"
timezone = "Europe/Berlin"
trigger = "ada"
[sandbox]
backend = "bubblewrap"
image = "x"
warm_minutes = 0.5
max_live = 2
parallel = 3
memory = "512m"
cpus = 0.5
pids = 100
packages = ["ripgrep"]
docker_host = "unix:///x"
work = "2g"
work_files = 10
[model]
engine = "messages"
service = "anthropic"
model = "m"
max_output = 100
effort = "low"
fallbacks = ["n"]
script = "s.json"
agent = "codex"
[limits]
steps = 3
wall_minutes = 0.5
tool_s = 9
output_bytes = "2k"
final_bytes = 2000
retries = 0
[services.anthropic]
base_url = "https://x"
credential = "${env:KEY}"
inject = { header = "x-api-key" }
methods = ["POST"]
paths = ["/v1"]
websocket = true
allow_private = true
limits = { requests_per_minute = 5 }
ca = "/x"
[services.web]
hosts = ["*"]
[channels.telegram]
enabled = true
token = "${file:/x}"
api_base = "http://127.0.0.1:9010"
[channels.slack]
enabled = true
bot_token = "${cred:a}"
app_token = "${cred:b}"
api_base = "http://127.0.0.1:9020"
[channels.discord]
enabled = true
token = "${env:D}"
api_base = "http://127.0.0.1:9030/api/v10"
gateway_url = "ws://127.0.0.1:9031"
[memory]
backend = "hybrid"
recall_k = 3
floor = 0.4
[budget]
usd_per_day = 1
usd_per_month = 20.5
tokens_per_day = 1
tokens_per_month = 2
requests_per_minute = 3
[logging]
level = "debug"
format = "json"
[webhooks]
listen = "127.0.0.1:8081"
[profiles.coding]
soft = 250000
hard = 350000
[profiles.own]
calibration = "state/calibrations/own.json"
[context]
policies = ["blockers", "cost"]
usd = 2.5
[engines.codex]
command = ["codex", "exec"]
prompt = "stdin"
output = "json"
[prices."claude-x"]
input = 3
output = 15
cached = 0.3
date = "2026-01-01"
[speech]
service = "whisper"
[retention]
text_days = 7
[distil]
sessions = 5
"""

GROUP = """
schema = 1
bindings = ["telegram:-100123", "slack:T012/C345"]
grants = ["anthropic", { service = "github", for = "owner", credential = "${env:GH}" }]
external = ["mmkr:*"]
answer = "mention"
listen = true
followups = "queue"
sessions = "thread"
timezone = "Asia/Tokyo"
trigger = "hey"
share_profile = true
default_session_tag = "task"
learn = "auto"
require_confirm = ["compact"]
profile = "coding"
agent_id = "a"
memory_namespace = "n"
shared = ["shared/x"]
[[mounts]]
path = "~/code"
name = "code"
mode = "rw"
shared = true
[[watch]]
paths = ["work"]
globs = ["*.csv"]
events = ["added"]
settle = 1.5
cooldown = 60
max_per_hour = 4
prompt = "look"
[[webhook]]
name = "ci"
secret = "${env:CI}"
scheme = "github"
prompt = "look"
[heartbeat]
hours = "9-18"
tz = "UTC"
file = "H.md"
[sandbox]
memory = "256m"
[model]
engine = "scripted"
script = "s.json"
[memory]
recall_k = 1
[budget]
usd_per_day = 0.5
[context]
policies = []
[limits]
steps = 4
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.create()
    return home


def write(home: Home, text: str) -> None:
    home.config_file.write_text(text)


def test_every_table_of_the_contract_is_read(home: Home) -> None:
    write(home, EVERYTHING)
    config = load_config(home, {})
    assert set(config.model_fields_set) == set(Config.model_fields) == set(tomllib.loads(EVERYTHING)) - {"schema"}
    assert config.sandbox.memory == 512 << 20
    assert config.services["anthropic"].inject is not None
    assert config.prices["claude-x"].cached == 0.3
    group = parse_group(GROUP)
    assert set(group.model_fields_set) == set(GroupConfig.model_fields) == set(tomllib.loads(GROUP)) - {"schema"}
    assert [(grant.service, grant.for_) for grant in group.grants] == [
        ("anthropic", None),
        ("github", "owner"),
    ]
    assert "[distil]" in not_built(config) and {"learn"} <= {*not_built(group)}
    built = {"bindings", "grants", "mounts", "followups", "timezone", "share_profile", "answer", "listen", "sessions"}
    built |= {"sandbox", "model", "limits", "memory", "budget", "trigger", "watch", "webhook", "heartbeat", "external"}
    built |= {"agent_id", "memory_namespace", "shared", "require_confirm"}
    built |= {"profile", "context"}
    assert {name.strip("[]") for name in not_built(group)} == {*GroupConfig.model_fields} - built
    assert not {"[services]", "[grants]", "[mounts]"} & {*not_built(config), *not_built(group)}
    limits = merged(config, group).limits
    assert (limits.steps, limits.wall_minutes, limits.output_bytes, limits.retries) == (4, 0.5, 2048, 0)
    assert not_built(Config()) == not_built(GroupConfig()) == []


def test_the_defaults(home: Home) -> None:
    write(home, "schema = 1\n[claw]\n")
    config = load_config(home, {})
    sandbox = config.sandbox
    assert (config.model.engine, sandbox.backend, config.logging.level) == ("offline", "auto", "info")
    assert (sandbox.warm_minutes, sandbox.max_live, sandbox.parallel, sandbox.cpus, sandbox.pids) == (
        10,
        4,
        4,
        1.0,
        256,
    )
    assert (sandbox.memory, sandbox.work, sandbox.work_files) == (1 << 30, 1 << 30, 100_000)
    assert load_group(home, "main") == GroupConfig()


def test_the_example_works_as_it_is_and_says_the_defaults(home: Home) -> None:
    example = shipped("config.example.toml").read_text()
    write(home, example)
    assert load_config(home, {}) == Config()
    assert check_file(home.config_file) == {"ok": True, "errors": []}
    seen, opened = [], set[str]()
    for block in re.findall(r"(?m)^# .*\n(?:#.*\n)*?(?:# \[\w.*\n)(?:#.*\n?)*", example):
        sentence, table, rest = block.partition("# [")
        write(
            home, example.replace(block, "".join(line.removeprefix("# ") + "\n" for line in (table + rest).split("\n")))
        )
        config = load_config(home, {})
        granted = re.search(r"grants = \[.*\]", sentence)
        settings = merged(config, parse_group(granted[0] if granted else ""))
        if config.model.engine != "offline":
            [first, *_], told = models(config, "main", replace(settings, model=served(config, settings.model)))
            service = config.services.get(first["service"])
            assert told == [] and ((service is not None and service.credential) or first["service"] == "ollama")
            assert first["model"] is None or service is None or price_of(first["model"], {}) is not None
        seen.append(config.model.engine)
        opened.update(config.channels.enabled())
    assert seen == ["messages", "chat", "chat", "claude-code", "exec", *["offline"] * 10]
    assert opened == {"telegram", "slack", "discord"} and config.speech.service is not None


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "docs/engines.md",
        "docs/agents.md",
        "docs/budgets.md",
        "docs/context.md",
        "docs/telegram.md",
        "docs/slack.md",
        "docs/discord.md",
        "docs/schedules.md",
        "docs/watching.md",
        "docs/webhooks.md",
    ],
)
def test_every_example_of_the_documents_is_understood(document: str) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        kinds = {
            Allowlist: r"\[\[roots\]\]",
            GroupConfig: r"grants|require_confirm|\[\[(mounts|watch|webhook)\]\]|\[heartbeat\]",
            ScheduleFile: r"cron|every|at\b",
        }
        found = (kind for kind, word in kinds.items() if re.search(rf"\A(#.*\n|schema.*\n|\s)*({word})", block))
        parse(next(found, Config), block, f"{document}: {block}")


def test_the_groups_own_tables_lie_over_the_configs(home: Home) -> None:
    write(home, EVERYTHING)
    effective = merged(load_config(home, {}), parse_group(GROUP))
    assert (effective.sandbox.memory, effective.sandbox.pids) == (256 << 20, 100)
    assert (effective.model.engine, effective.model.service) == ("scripted", "anthropic")
    assert (effective.memory.recall_k, effective.memory.backend) == (1, "hybrid")
    assert (effective.budget.usd_per_day, effective.budget.usd_per_month) == (0.5, 20.5)
    assert (effective.name, effective.timezone, effective.trigger) == ("Ada", "Asia/Tokyo", "hey")
    assert merged(Config(), GroupConfig()).timezone == machine_zone()


@pytest.mark.parametrize(
    ("text", "where", "what", "hint"),
    [
        ('[model]\nengin = "x"\n', "config.toml:2 [model] engin", "engin is no known key", "did you mean engine?"),
        ("[modle]\n", "config.toml:1 modle", "modle is no known key", "did you mean model?"),
        ("\n[zzz]\n", "config.toml:2 zzz", "zzz is no known key", "known here: budget, channels"),
        ('[model]\nengine = "gpt"\n', "config.toml:2 [model] engine", "input should be 'offline'", ""),
        ("model.engine = 'gpt'\n", "config.toml:1 [model] engine", "input should be", ""),
        ("[sandbox]\n# c\nmemory = 'lots'\n", "config.toml:3 [sandbox] memory", "a size is", ""),
        ("[sandbox]\nmax_live = 0\n", "config.toml:2 [sandbox] max_live", "greater than 0", ""),
        ("[sandbox]\nmemory = '" + "9" * 400 + "g'\n", "config.toml:2 [sandbox] memory", "a size is", ""),
        ("[sandbox]\nwork = '9999999999g'\n", "config.toml:2 [sandbox] work", "less than or equal to", ""),
        ("[sandbox]\ncpus = inf\n", "config.toml:2 [sandbox] cpus", "less than or equal to", ""),
        ("[sandbox]\npids = 99999999999\n", "config.toml:2 [sandbox] pids", "less than or equal to", ""),
        ("[sandbox]\nparallel = 1000\n", "config.toml:2 [sandbox] parallel", "less than or equal to 32", ""),
        ("[sandbox]\nimage = ''\n", "config.toml:2 [sandbox] image", "is called like", ""),
        ("[sandbox]\nimage = 'a/../b'\n", "config.toml:2 [sandbox] image", "is called like", ""),
        ("[retention]\ntext_days = 3650000\n", "config.toml:2 [retention] text_days", "less than or equal to", ""),
        ("[retention]\nlog_days = 0\n", "config.toml:2 [retention] log_days", "greater than 0", ""),
        ("[claw]\ntimezone = 'Mars/X'\n", "config.toml:2 [claw] timezone", "'Mars/X' is no time zone", ""),
        ("[claw]\ntimezone = '../etc'\n", "config.toml:2 [claw] timezone", "is no time zone", ""),
        ("[services.a]\nbase_url='https://x'\ncredental='y'\n", "config.toml:3 [services.a] credental", "no known key",
         "did you mean credential?"),
        ("[services.a]\nbase_url='https://x'\ninject = { bear = true }\n", "config.toml:3 [services.a.inject] bear",
         "no known key", "did you mean bearer?"),
        ("[services.a]\nmethods=['GET']\n", "config.toml:1 [services] a", "base_url, hosts or both", ""),
        ("[engines.x]\nprompt='stdin'\n", "config.toml:1 [engines.x] command", "command is missing", "add command"),
        ("[profiles.x]\nsoft = 2\nhard = 1\n", "config.toml:1 [profiles] x", "soft must be below hard", ""),
        ("[prices.x]\ninput = nan\noutput = 1\n", "config.toml:2 [prices.x] input", "", ""),
        ("[channels.telegram]\ntoken = 'SECRET'\n", "config.toml:2 [channels.telegram] token", "a reference", ""),
        ("[model\n", "config.toml:1", "not TOML", ""),
        ("x = 1\nx = 2\n", "config.toml:2", "not TOML", ""),
        ("schema = 2\n", "config.toml", "schema 2, and this clawd knows 1", "install"),
        ("schema = 0\n", "config.toml", "schema 0", "clawd migrate"),
        ("[claw]\n", None, "", ""),
        ("schema = 'x'\n", "config.toml:1", "schema is a number", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(home: Home, text: str, where: str | None, what: str, hint: str) -> None:
    write(home, text)
    result = check_file(home.config_file)
    if where is None:
        assert result["ok"]
        return
    (error,) = result["errors"]
    assert error["where"] == where
    assert what in error["what"]
    assert hint in error["hint"]
    assert "SECRET" not in str(result)
    with pytest.raises(ConfigError) as caught:
        load_config(home, {})
    assert caught.value.errors == result["errors"] and caught.value.code == 4
    assert where in str(caught.value)


def test_every_finding_is_told_at_once(home: Home) -> None:
    write(home, "[model]\na = 1\nb = 2\n")
    with pytest.raises(ConfigError, match="and 1 more") as caught:
        load_config(home, {})
    assert len(caught.value.errors) == 2


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("bindings = ['telegram']\n", "group.toml:1 [bindings] 0", "<channel>:<chat>"),
        (
            "[[mounts]]\npath='a'\nname='b'\n[[mounts]]\npath='a'\nname='../b'\n",
            "group.toml:6 [mounts] name",
            "a mount's name is of letters",
        ),
        ("grants = 'a'\n", "group.toml:1 grants", "takes a list"),
        ("memory_namespace = '../b'\n", "group.toml:1 memory_namespace", "write it like team/garden"),
        ("memory_namespace = 'Team'\n", "group.toml:1 memory_namespace", "is no namespace"),
        ("shared = ['shared/x', 'team/x']\n", "group.toml:1 shared", "is called like shared/team/x"),
        ("shared = ['shared/../x']\n", "group.toml:1 [shared] 0", "is no namespace"),
        ("memory_namespace = 'shared/x'\n", "group.toml", 'must list: shared = ["shared/x"]'),
        ("agent_id = '-a b'\n", "group.toml:1 agent_id", "write it like agent-1"),
        ("grants = [3]\n", "group.toml:1 [grants] 0", "takes a table"),
        ("[[mounts]]\npath='a'\nname='b'\ngrants=['a']\n", "group.toml:4 [mounts] grants", "no known key"),
        ("grants = [{ service = 'a', fro = 'owner' }]\n", "group.toml:1 [grants] fro", "no known key"),
        ("[[webhook]]\nname='a'\nsecret='SECRET'\n", "group.toml:3 [webhook] secret", "a reference"),
        ("[claw]\n", "group.toml:1 claw", "no known key"),
    ],
)
def test_a_groups_file_is_checked_by_its_own_schema(tmp_path: Path, text: str, where: str, what: str) -> None:
    file = tmp_path / "group.toml"
    file.write_text(text)
    (error,) = check_file(file)["errors"]
    assert error["where"] == where
    assert what in error["what"]
    assert "SECRET" not in str(error)
    assert ("stands at the top" in error["hint"]) == ("] grants" in where)


def test_a_home_is_checked_whole(home: Home) -> None:
    write(home, "[claw]\nnam = 'x'\n")
    home.group("main").root.mkdir(parents=True)
    home.group("main").config_file.write_text("grant = ['a']\n")
    assert [(each["where"], each["hint"]) for each in check_home(home)["errors"]] == [
        ("config.toml:2 [claw] nam", "did you mean name?"),
        ("groups/main/group.toml:1 grant", "did you mean grants?"),
    ]
    write(home, "")
    home.group("main").config_file.unlink()
    assert check_home(home) == {"ok": True, "errors": []}


def test_files_that_cannot_be_read(home: Home) -> None:
    with pytest.raises(NotFound, match="clawd init"):
        load_config(home, {})
    assert check_file(home.config_file)["errors"][0]["hint"].startswith("clawd init")
    home.config_file.write_bytes(b"[claw]\nname = '\xff'")
    assert check_file(home.config_file)["errors"][0]["what"] == "byte 15 is not UTF-8"
    home.config_file.unlink()
    os.mkfifo(home.config_file)
    assert "no plain file" in check_file(home.config_file)["errors"][0]["what"]
    home.config_file.unlink()
    home.config_file.write_bytes(b"schema = 1\n" + b"# a line of no importance\n" * 50_000)
    assert check_file(home.config_file)["errors"][0]["what"] == "the file is larger than 1 MB"
    home.config_file.unlink()
    home.config_file.mkdir()
    assert "cannot be read" in check_file(home.config_file)["errors"][0]["what"]


def test_the_environment_overrides(home: Home) -> None:
    write(home, "[model]\nengine = 'scripted'\n")
    environment = {
        "CLAWD_MODEL__ENGINE": "offline",
        "CLAWD_SANDBOX__MAX_LIVE": "2",
        "CLAWD_SANDBOX__MEMORY": "64m",
        "CLAWD_CLAW__NAME": "7",
        "CLAWD_CLAW__TRIGGER": "1979-05-27",
        "CLAWD_CHANNELS__TELEGRAM__ENABLED": "true",
        "CLAWD_CHANNELS__TELEGRAM__TOKEN": "${env:T}",
        "CLAWD_HOME": "/elsewhere",
        "CLAWD_FAULT": "",
    }
    config = load_config(home, environment)
    assert (config.model.engine, config.sandbox.max_live, config.sandbox.memory) == ("offline", 2, 64 << 20)
    assert (config.claw.name, config.claw.trigger) == ("7", "1979-05-27")
    assert config.channels.telegram.enabled
    with pytest.raises(ConfigError) as caught:
        load_config(home, {"CLAWD_MODEL__ENGIN": "x"})
    assert caught.value.errors == [
        {
            "where": "environment CLAWD_MODEL__ENGIN",
            "what": "engin is no known key",
            "hint": "did you mean engine?",
        }
    ]


def test_lines_are_found() -> None:
    text = 'a = 1\n[b]\n"c d" = 1\n[[e]]\nf = 1\n[[e]]\nf = 2\n[e.g]\nh = 1\n[i."j.k"]\n'
    for location, line in [
        (("a",), 1), (("b", "c d"), 3), (("b", "x"), 2), (("e", "1", "f"), 7), (("i", "j.k"), 10), (("z",), None),
    ]:  # fmt: skip
        assert line_of(text, location) == line


def test_the_home_can_be_found_without_pydantic() -> None:
    program = "import sys, clawd.config.home; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

# `make chat` talks to the agent, `make test` tests everything; each sets up what it needs. A second run is instant.

.PHONY: chat test soak bench lint lock
.SUFFIXES:

# A message is passed on as it was typed: make expands none of it, and no shell reads it.
export CLAWD_MESSAGE := $(value MESSAGE)
unexport MESSAGE
MAKEOVERRIDES =

bin := .venv/bin

chat: .venv/.runtime config.toml
	@if [ -n "$$CLAWD_MESSAGE" ]; then \
		printf %s "$$CLAWD_MESSAGE" | env -u CLAWD_MESSAGE $(bin)/clawd --home . chat -m -; \
	else \
		exec $(bin)/clawd --home . chat; \
	fi

# Programs are started a thousand times here: each module is compiled once, whatever the machine says.
test: export PYTHONDONTWRITEBYTECODE :=
test: .venv/.dev
	@$(bin)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Half an hour of random kills, ten minutes of chats on three channels; `make test` has a minute of each.
soak: .venv/.dev
	@$(bin)/python -m tests.system.soak

bench: .venv/.dev
	@$(bin)/python -m benchmarks

lint: .venv/.dev
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports

# A clone is a usable home: nobody else may write to it.
config.toml:
	@umask 077 && cp config.example.toml config.toml
	@chmod go-w . config.toml

.venv/.runtime: requirements.lock requirements-build.lock pyproject.toml
	@.ci/setup runtime

.venv/.dev: requirements-dev.lock requirements-build.lock pyproject.toml
	@.ci/setup dev

# The lock files name versions and hashes, and no address. Needs uv.
compile := uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header \
	--no-emit-index-url --no-emit-find-links
lock:
	$(compile) pyproject.toml -o requirements.lock
	$(compile) requirements-build.in -o requirements-build.lock
	$(compile) pyproject.toml requirements-build.in --extra dev -c requirements.lock -c requirements-build.lock \
		-o requirements-dev.lock
	! grep -nE '://|^--' requirements*.lock

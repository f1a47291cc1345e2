from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pi_ls import models
from pi_ls.core.errors import NoCredentials, NoModel
from pi_ls.core.jsonvalues import Json
from pi_ls.models import (
    APIS,
    OFFLINE,
    PROVIDERS,
    Credentials,
    ModelCatalogue,
    choose_model,
    is_loopback,
    split_ref,
)

SECRET = "sk-secret-0123456789"


class Agent:
    """An agent folder with the files that models and keys are read from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.models_file = folder / "models.json"
        self.auth_file = folder / "auth.json"

    def models(self, providers: Any) -> Agent:
        self.models_file.write_text(json.dumps({"providers": providers}), "utf-8")
        return self

    def auth(self, **entries: Any) -> Agent:
        self.auth_file.write_text(json.dumps(entries), "utf-8")
        return self

    @property
    def catalogue(self) -> ModelCatalogue:
        return ModelCatalogue(self.folder)

    def credentials(self, **environ: str) -> Credentials:
        return Credentials(self.folder, environ)


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def fake(*entries: Json, **more: Any) -> Json:
    return {"baseUrl": "http://127.0.0.1:1/v1", "api": "openai-completions", "models": list(entries), **more}


def refusal(credentials: Credentials, provider: str) -> NoCredentials:
    with pytest.raises(NoCredentials) as caught:
        credentials.key(provider)
    assert SECRET not in repr(caught.value) + json.dumps(caught.value.data)
    return caught.value


# Which models there are


def test_windows_belong_to_the_exact_provider_and_id(agent: Agent) -> None:
    small, large = {"id": "foo-6", "contextWindow": 200_000}, {"id": "foo-6", "contextWindow": 1_000_000}
    variant = {"id": "foo-6[1m]", "contextWindow": 1_000_001}
    catalogue = agent.models({"fakeA": fake(small), "fakeB": fake(large, variant)}).catalogue

    def window(provider: str, model_id: str) -> int | None:
        found = catalogue.find(provider, model_id)
        return found.context_window if found else -1

    assert window("fakeA", "foo-6") == 200_000
    assert window("fakeB", "foo-6") == 1_000_000
    assert window("fakeB", "foo-6[1m]") == 1_000_001
    for provider, model_id in [
        ("fakeA", "foo-6[1m]"),
        ("fakeA", "Foo-6"),
        ("fakea", "foo-6"),
        ("fakeC", "foo-6"),
    ]:
        assert window(provider, model_id) == -1
        assert catalogue.resolve(provider, model_id).context_window is None


@pytest.mark.parametrize(
    "value", ["null", "0", "-1", '"200000"', "NaN", "Infinity", "1e400", "1.5", "true", "[]"]
)
def test_a_window_that_is_no_whole_number_is_unknown(agent: Agent, value: str) -> None:
    model = f'{{"id": "m", "contextWindow": {value}, "maxTokens": {value}}}'
    agent.models_file.write_text(
        f'{{"providers": {{"fake": {{"baseUrl": "http://127.0.0.1:1", "api": "openai-completions", '
        f'"models": [{model}]}}}}}}'
    )
    found = agent.catalogue.find("fake", "m")
    assert found is not None
    assert (found.context_window, found.max_tokens) == (None, None)
    assert found.unsupported is None


def test_a_model_without_a_window_has_none_even_if_its_name_is_known(agent: Agent) -> None:
    found = agent.models({"fake": fake({"id": "claude-sonnet-4-5"})}).catalogue.find(
        "fake", "claude-sonnet-4-5"
    )
    assert found is not None
    assert (found.context_window, found.max_tokens) == (None, None)


def test_output_limits_are_those_of_models_json(agent: Agent) -> None:
    wanted = {
        "big": (1_000_000, 64_000),
        "m200": (200_000, 8192),
        "nomax": (200_000, 0),
        "wide": (200_000, 100_000),
    }
    entries = [
        {"id": one, "contextWindow": window, "maxTokens": most} for one, (window, most) in wanted.items()
    ]
    catalogue = agent.models({"fake": fake(*entries)}).catalogue
    limits = {model.id: model.max_tokens for model in catalogue.own()}
    assert limits == {"big": 64_000, "m200": 8192, "nomax": None, "wide": 100_000}


def test_litellms_table_is_read_without_importing_litellm(agent: Agent) -> None:
    code = (
        "import sys; from pathlib import Path; from pi_ls.models import ModelCatalogue\n"
        "found = ModelCatalogue(Path(sys.argv[1])).find('anthropic', 'claude-sonnet-4-5')\n"
        "print(found.context_window, found.max_tokens, found.reasoning, found.cost.input,"
        " found.litellm_model, 'litellm' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(agent.folder)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert found == ["200000", "64000", "True", "3.0", "anthropic/claude-sonnet-4-5", "False"]


@pytest.mark.parametrize(
    ("provider", "model_id", "litellm_model"),
    [
        ("openai", "gpt-5", "openai/gpt-5"),
        ("google", "gemini-2.5-pro", "gemini/gemini-2.5-pro"),
        ("moonshotai", "kimi-k2.5", "moonshot/kimi-k2.5"),
        ("groq", "openai/gpt-oss-120b", "groq/openai/gpt-oss-120b"),
        ("vercel-ai-gateway", "anthropic/claude-sonnet-4.5", "vercel_ai_gateway/anthropic/claude-sonnet-4.5"),
        ("amazon-bedrock", "us.writer.palmyra-x4-v1:0", "bedrock/us.writer.palmyra-x4-v1:0"),
    ],
)
def test_pis_names_find_litellms_rows(agent: Agent, provider: str, model_id: str, litellm_model: str) -> None:
    found = agent.catalogue.find(provider, model_id)
    assert found is not None
    assert found.litellm_model == litellm_model
    assert found.context_window is not None
    assert found.api == PROVIDERS[provider].api


@pytest.mark.parametrize(
    ("provider", "model_id"),
    [("openai", "claude-sonnet-4-5"), ("anthropic", "gpt-5"), ("ollama", "codellama"), ("opencode", "gpt-5")],
)
def test_a_row_counts_for_its_own_provider_only(agent: Agent, provider: str, model_id: str) -> None:
    assert agent.catalogue.find(provider, model_id) is None


def test_litellm_knows_every_prefix_that_is_used() -> None:
    code = (
        "import sys, litellm; litellm.suppress_debug_info = True\n"
        "for prefix in sys.argv[1:]: litellm.get_llm_provider(prefix + '/some-model', api_key='x')"
    )
    offline = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
    prefixes = sorted({one.prefix for one in PROVIDERS.values()} | {*APIS.values()})
    command = [sys.executable, "-c", code, *prefixes]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, env=offline)
    assert ran.returncode == 0, ran.stderr[-500:]


def test_an_output_limit_as_large_as_the_window_is_no_limit(agent: Agent) -> None:
    models_with_both = [one for one in agent.catalogue.all() if one.max_tokens and one.context_window]
    assert models_with_both
    assert all((one.max_tokens or 0) < (one.context_window or 0) for one in models_with_both)


def test_models_json_comes_first_and_changes_known_providers(agent: Agent) -> None:
    proxy: Json = {"baseUrl": "https://proxy.example/v1", "headers": {"x-team": "a"}}
    overrides = {"claude-opus-4-5": {"contextWindow": 5, "name": "Mine"}}
    own = {"id": "claude-sonnet-4-5", "contextWindow": 1_000_000, "headers": {"x-model": "b"}}
    catalogue = agent.models({"anthropic": {**proxy, "models": [own], "modelOverrides": overrides}}).catalogue
    replaced = catalogue.find("anthropic", "claude-sonnet-4-5")
    changed = catalogue.find("anthropic", "claude-opus-4-5")
    other = catalogue.find("anthropic", "claude-haiku-4-5")
    assert replaced is not None
    assert changed is not None
    assert other is not None
    assert (replaced.context_window, replaced.max_tokens) == (1_000_000, None)
    assert replaced.headers == {"x-team": "a", "x-model": "b"}
    assert (changed.context_window, changed.name, changed.max_tokens) == (5, "Mine", 64_000)
    assert other.context_window == 200_000
    assert {one.base_url for one in (replaced, changed, other)} == {proxy["baseUrl"]}
    assert {one.litellm_model.split("/")[0] for one in (replaced, changed, other)} == {"anthropic"}
    refs = [one.ref for one in catalogue.all()]
    assert refs[0] == "anthropic/claude-sonnet-4-5"
    assert len(refs) == len(set(refs))


@pytest.mark.parametrize(("api", "prefix"), APIS.items())
def test_an_api_decides_how_a_custom_provider_is_spoken_to(agent: Agent, api: str, prefix: str) -> None:
    agent.models({"mine": {"baseUrl": "https://x/v1", "models": [{"id": "a/b", "api": api}]}})
    found = agent.catalogue.find("mine", "a/b")
    assert found is not None
    assert (found.litellm_model, found.api, found.base_url) == (f"{prefix}/a/b", api, "https://x/v1")
    found.require()


@pytest.mark.parametrize(
    ("provider", "entry", "word"),
    [
        ("mine", {"baseUrl": "http://x", "api": "smoke-signals"}, "smoke-signals"),
        ("mine", {"baseUrl": "http://x"}, "has no api"),
        ("mine", {"api": "openai-completions"}, "baseUrl"),
        ("nobody", None, "not known"),
        ("github-copilot", None, "login"),
    ],
)
def test_what_cannot_be_reached_is_an_error_that_says_why(
    agent: Agent, provider: str, entry: Json | None, word: str
) -> None:
    if entry is not None:
        agent.models({provider: entry})
    found = agent.catalogue.resolve(provider, "m")
    assert found.litellm_model == ""
    with pytest.raises(NoModel) as caught:
        found.require()
    assert provider in caught.value.message
    assert word in caught.value.message


def test_a_known_providers_key_is_not_taken_to_another_host_by_an_api_alone(agent: Agent) -> None:
    agent.models({"groq": {"api": "openai-completions", "models": [{"id": "m"}]}})
    assert agent.catalogue.resolve("groq", "m").litellm_model == "groq/m"


def test_a_model_nobody_knows_is_reached_like_the_others_of_its_provider(agent: Agent) -> None:
    catalogue = agent.models({"fake": fake({"id": "m200"}, headers={"x": "y"})}).catalogue
    found = catalogue.resolve("fake", "new")
    assert found.litellm_model == "openai/new"
    assert (found.context_window, found.base_url, found.headers) == (
        None,
        "http://127.0.0.1:1/v1",
        {"x": "y"},
    )
    assert found.is_loopback
    assert catalogue.resolve("openai", "gpt-next").litellm_model == "openai/gpt-next"


def test_prices_are_dollars_for_a_million_tokens(agent: Agent) -> None:
    cost = {"input": 1.5, "output": 2, "cacheRead": "free", "cacheWrite": -1}
    found = agent.models({"fake": fake({"id": "m", "cost": cost})}).catalogue.find("fake", "m")
    known = agent.catalogue.find("anthropic", "claude-sonnet-4-5")
    assert found is not None
    assert found.cost == models.ModelCost(input=1.5, output=2)
    assert known is not None
    assert known.cost == models.ModelCost(input=3, output=15, cache_read=0.3, cache_write=3.75)


def test_models_json_may_hold_comments_and_trailing_commas(agent: Agent) -> None:
    agent.models_file.write_text(
        '\ufeff{\n  // local\n  "providers": {"fake": {"baseUrl": "http://127.0.0.1:1//v1", // here\n'
        '    "api": "openai-completions",\n'
        '    "models": [{"id": "a,]//b", "contextWindow": 5,},\n  // end\n ],},},\n}',
        "utf-8",
    )
    found = agent.catalogue.find("fake", "a,]//b")
    assert found is not None
    assert (found.context_window, found.base_url) == (5, "http://127.0.0.1:1//v1")


def test_a_change_of_models_json_is_seen_at_once(agent: Agent) -> None:
    catalogue, credentials = agent.catalogue, agent.credentials()
    assert catalogue.find("fake", "m") is None
    assert not credentials.available("fake")
    agent.models({"fake": fake({"id": "m"})})
    assert catalogue.find("fake", "m") is not None
    assert credentials.available("fake")


def test_a_broken_models_json_is_reported_with_path_and_line(agent: Agent) -> None:
    agent.models_file.write_text('{\n "providers": {"a": }\n}')
    catalogue = agent.catalogue
    assert [(one.file, one.line) for one in catalogue.problems] == [(str(agent.models_file), 2)]
    assert catalogue.find("anthropic", "claude-sonnet-4-5") is not None


def test_misshapen_entries_are_reported_and_the_others_used(agent: Agent) -> None:
    agent.models({"a": 5, "b": fake({"id": "good"}, {"name": "no id"}), "c": {"models": {}}})
    catalogue = agent.catalogue
    assert [one.key for one in catalogue.problems] == [
        "providers.a",
        "providers.b.models[1]",
        "providers.c.models",
    ]
    assert [one.ref for one in catalogue.own()] == ["b/good"]
    agent.models([])
    assert [one.key for one in catalogue.problems] == ["providers"]
    assert [*catalogue.own()] == []


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://localhost:11434", True),
        ("http://127.0.0.1:8080/v1", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:1", True),
        ("https://api.localhost", True),
        ("https://localhost.example.com", False),
        ("http://10.0.0.1", False),
        ("http://127.0.0.1.example.com", False),
        ("http://127.0.0.1@example.com", False),
        ("http://[broken", False),
        ("", False),
    ],
)
def test_loopback_is_told_by_the_host(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


# Keys


def test_keys_come_from_the_environment_then_auth_json_then_models_json(agent: Agent) -> None:
    agent.models({"openai": {"apiKey": "from-models"}})
    assert agent.credentials().key("openai") == "from-models"
    agent.auth(openai={"type": "api_key", "key": "from-auth"})
    assert agent.credentials().key("openai") == "from-auth"
    assert agent.credentials(OPENAI_API_KEY="from-env").key("openai") == "from-env"
    assert agent.credentials(OPENAI_API_KEY="").key("openai") == "from-auth"


def test_a_provider_with_its_own_url_and_key_gets_no_other_key(agent: Agent) -> None:
    agent.models({"openai": {"baseUrl": "https://proxy.example", "apiKey": "for-the-proxy"}})
    assert agent.credentials(OPENAI_API_KEY=SECRET).key("openai") == "for-the-proxy"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("$MINE", "abc"),
        ("${MINE}_x", "abc_x"),
        ("$MINE-$OTHER", "abc-def"),
        ("$$MINE", "$MINE"),
        ("$!true", "!true"),
        ("MINE", "MINE"),
        ("pa$5", "pa$5"),
        ("  plain  ", "plain"),
        ("!printf ' spaced \\n\\n'", "spaced"),
        ("!printf 'ü'", "ü"),
    ],
)
@pytest.mark.parametrize("file", ["auth", "models"])
def test_a_key_may_name_a_variable_or_a_command(agent: Agent, file: str, text: str, key: str) -> None:
    if file == "auth":
        agent.auth(mine={"type": "api_key", "key": text})
    else:
        agent.models({"mine": fake(apiKey=text, baseUrl="https://x")})
    credentials = agent.credentials(MINE="abc", OTHER="def")
    assert credentials.available("mine")
    assert credentials.key("mine") == key


def test_a_command_is_asked_once_and_never_to_see_what_is_available(agent: Agent) -> None:
    log = agent.folder / "log"
    agent.auth(mine={"type": "api_key", "key": f"!echo asked >> '{log}'; echo {SECRET}"})
    credentials = agent.credentials()
    assert credentials.available("mine")
    assert not log.exists()
    assert [credentials.key("mine"), credentials.key("mine"), agent.credentials().key("mine")] == [SECRET] * 3
    assert log.read_text() == "asked\n"


@pytest.mark.parametrize(
    "command", [f"echo {SECRET}; exit 3", f"true {SECRET}", f"echo {SECRET} >&2; no-such-command"]
)
def test_a_command_that_fails_is_an_error_without_its_text(agent: Agent, command: str) -> None:
    agent.auth(mine={"type": "api_key", "key": f"!{command}"})
    error = refusal(agent.credentials(), "mine")
    assert str(agent.auth_file) in error.message
    assert "command" in error.message


def test_a_command_that_failed_is_asked_again(agent: Agent) -> None:
    unlocked = agent.folder / "unlocked"
    agent.auth(mine={"type": "api_key", "key": f"!cat '{unlocked}'"})
    credentials = agent.credentials()
    refusal(credentials, "mine")
    unlocked.write_text("now")
    assert credentials.key("mine") == "now"


def test_a_command_that_hangs_is_ended_with_its_children(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "COMMAND_SECONDS", 0.3)
    child = agent.folder / "child"
    agent.auth(mine={"type": "api_key", "key": f"!sleep 60 & echo $! > '{child}'; wait"})
    started = time.monotonic()
    error = refusal(agent.credentials(), "mine")
    assert time.monotonic() - started < 5
    assert "0.3 s" in error.message
    deadline = time.monotonic() + 5
    while alive(int(child.read_text())):
        assert time.monotonic() < deadline, "the child outlived its command"
        time.sleep(0.01)


def alive(process: int) -> bool:
    """Whether a process still runs; one that only waits to be reaped does not."""
    try:
        os.kill(process, 0)
        status = Path(f"/proc/{process}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_command_cannot_read_what_is_meant_for_the_server(agent: Agent) -> None:
    code = (
        "import sys; from pathlib import Path; from pi_ls.models import Credentials\n"
        "print(Credentials(Path(sys.argv[1]), {}).key('mine'), sys.stdin.read())"
    )
    agent.auth(mine={"type": "api_key", "key": "!echo got; cat"})
    command = [sys.executable, "-c", code, str(agent.folder)]
    ran = subprocess.run(command, input="protocol", capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "got protocol\n"


@pytest.mark.parametrize("provider", [name for name, one in PROVIDERS.items() if one.variables])
def test_a_missing_key_is_an_error_that_names_the_variable(agent: Agent, provider: str) -> None:
    known = PROVIDERS[provider]
    credentials = agent.credentials()
    assert not credentials.available(provider)
    error = refusal(credentials, provider)
    assert known.variables[0] in error.message
    assert error.data == {"provider": provider, "variable": known.variables[0]}
    for name in known.variables:
        assert agent.credentials(**{name: SECRET}).key(provider) == SECRET
        assert agent.credentials(**{name: SECRET}).available(provider)


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "oauth", "access": SECRET, "refresh": SECRET, "expires": 1},
        {"type": "api_key"},
        {"type": "api_key", "key": 5},
        {"type": "api_key", "key": "$NOT_SET"},
        {"key": SECRET},
        {"type": "api_key", "key": "  "},
        SECRET,
        [SECRET],
    ],
)
def test_an_entry_that_gives_no_key_is_an_error_that_names_the_variable(agent: Agent, entry: Any) -> None:
    credentials = agent.auth(anthropic=entry).credentials()
    assert not credentials.available("anthropic")
    error = refusal(credentials, "anthropic")
    assert "ANTHROPIC_API_KEY" in error.message
    assert str(agent.auth_file) in error.message
    assert agent.credentials(ANTHROPIC_API_KEY="k").key("anthropic") == "k"


def test_a_variable_that_is_not_set_is_named(agent: Agent) -> None:
    agent.models({"mine": fake(apiKey="$MY_KEY")})
    credentials = agent.credentials()
    assert not credentials.available("mine"), "even if its place would need no key"
    assert "MY_KEY" in refusal(credentials, "mine").message


@pytest.mark.parametrize(
    "content", [b"{oops", b"[]", '{"a": 1}'.encode("utf-16"), f'{{"anthropic": "{SECRET}'.encode()]
)
def test_a_broken_auth_json_is_reported_with_its_path_and_counts_as_empty(
    agent: Agent, content: bytes
) -> None:
    agent.auth_file.write_bytes(content)
    credentials = agent.credentials(OPENAI_API_KEY="k")
    assert [one.file for one in credentials.problems] == [str(agent.auth_file)]
    assert SECRET not in repr(credentials.problems)
    assert credentials.key("openai") == "k"
    assert str(agent.auth_file) in refusal(credentials, "anthropic").message
    assert agent.auth_file.read_bytes() == content


def test_what_this_machine_serves_needs_no_key(agent: Agent) -> None:
    agent.models(
        {"here": fake(), "there": fake(baseUrl="https://example.com/v1"), "v6": fake(baseUrl="http://[::1]/")}
    )
    credentials = agent.credentials()
    for provider in ("ollama", "lmstudio", "here", "v6", "offline"):
        assert credentials.key(provider) is None
        assert credentials.available(provider)
    assert not credentials.available("there")
    assert str(agent.models_file) in refusal(credentials, "there").message


def test_a_local_name_at_another_host_needs_a_key(agent: Agent) -> None:
    credentials = agent.models({"ollama": fake(baseUrl="https://ollama.example.com/v1")}).credentials()
    assert not credentials.available("ollama")
    refusal(credentials, "ollama")


@pytest.mark.parametrize(
    ("provider", "environ"),
    [
        ("amazon-bedrock", {"AWS_PROFILE": "x"}),
        ("amazon-bedrock", {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}),
        ("google-vertex", {"GOOGLE_APPLICATION_CREDENTIALS": "/x.json"}),
    ],
)
def test_where_litellm_finds_the_credentials_itself_there_is_no_key(
    agent: Agent, provider: str, environ: Mapping[str, str]
) -> None:
    assert agent.credentials(**environ).key(provider) is None
    assert agent.credentials(**environ).available(provider)
    refusal(agent.credentials(**{name: "" for name in environ}), provider)


def test_headers_are_filled_in_like_keys(agent: Agent) -> None:
    headers = {"x-plain": "a", "x-named": "$TOKEN", "x-asked": "!echo asked", "x-odd": 5}
    model = agent.models({"mine": fake({"id": "m"}, headers=headers)}).catalogue.resolve("mine", "m")
    filled = {"x-plain": "a", "x-named": SECRET, "x-asked": "asked"}
    assert agent.credentials(TOKEN=SECRET).headers(model) == filled
    ready, key = agent.credentials(TOKEN=SECRET).ready(model)
    assert (ready.headers, key) == (filled, None)
    assert SECRET not in repr(ready)
    with pytest.raises(NoCredentials, match="TOKEN"):
        agent.credentials().headers(model)


def test_no_key_is_in_anything_that_is_shown(agent: Agent) -> None:
    agent.auth(anthropic={"type": "api_key", "key": SECRET}, x={"type": "oauth", "access": SECRET})
    agent.models(
        {"mine": fake({"id": "m"}, apiKey=SECRET, headers={"x": SECRET}, baseUrl=f"http://u:{SECRET}@h")}
    )
    catalogue, credentials = agent.catalogue, agent.credentials(OPENAI_API_KEY=SECRET)
    model = catalogue.resolve("mine", "m")
    shown = [catalogue, credentials, model, [*catalogue.own()], catalogue.problems, credentials.problems]
    shown += [vars(credentials).get(name) for name in ("_auth", "_models")]
    assert SECRET not in repr(shown) + str(shown)
    refusal(credentials, "x")


# Which one a session uses


def test_the_named_model_is_used_in_order_of_who_named_it(agent: Agent) -> None:
    agent.models({"fake": fake({"id": "first"}, {"id": "a/b"})})

    def chosen(**named: Any) -> str | None:
        model = choose_model(agent.catalogue, agent.credentials(), **named)
        return model.ref if model else None

    named: Json = {"of_path": ("fake", "path"), "option": "fake/a/b", "default": ("fake", "set")}
    assert chosen(**named) == "fake/path"
    assert chosen(**{**named, "of_path": None}) == "fake/a/b"
    assert chosen(default=("fake", "set")) == "fake/set"
    assert chosen(option="no-slash") == "fake/first"
    assert chosen() == "fake/first"
    assert chosen(option="offline/extractive") == "offline/extractive"


def test_a_named_model_without_credentials_is_not_exchanged_for_another(agent: Agent) -> None:
    agent.models({"fake": fake({"id": "m"})})
    found = choose_model(agent.catalogue, agent.credentials(), of_path=("anthropic", "claude-sonnet-4-5"))
    assert found is not None
    assert found.provider == "anthropic"


def test_without_a_name_the_first_model_with_credentials_is_used(agent: Agent) -> None:
    assert choose_model(agent.catalogue, agent.credentials()) is None
    keyed = agent.credentials(OPENAI_API_KEY="k", GROQ_API_KEY="k")
    known = choose_model(agent.catalogue, keyed)
    assert known is not None
    assert known.provider == "openai"
    assert known.context_window is not None
    agent.models({"far": fake({"id": "m"}, baseUrl="https://x"), "odd": {"models": [{"id": "m"}]}})
    assert choose_model(agent.catalogue, agent.credentials()) is None
    agent.auth(far={"type": "api_key", "key": "k"})
    found = choose_model(agent.catalogue, keyed)
    assert found is not None
    assert found.ref == "far/m"


@pytest.mark.parametrize("provider", [name for name, one in PROVIDERS.items() if one.preferred])
def test_the_model_to_begin_with_is_one_that_is_known(agent: Agent, provider: str) -> None:
    if provider != "openrouter":  # whose models are in no table
        found = [agent.catalogue.find(provider, model_id) for model_id in PROVIDERS[provider].preferred]
        assert any(model is not None and model.context_window for model in found)


def test_the_offline_model_has_no_window_and_needs_no_key(agent: Agent) -> None:
    assert agent.catalogue.find("offline", "extractive") is OFFLINE
    assert OFFLINE.context_window is None
    assert agent.credentials().key("offline") is None


@pytest.mark.parametrize(
    ("ref", "parts"),
    [
        ("a/b", ("a", "b")),
        ("a/b/c", ("a", "b/c")),
        ("a", None),
        ("/a", None),
        ("a/", None),
        ("", None),
        (None, None),
    ],
)
def test_a_reference_is_split_at_its_first_slash(ref: str | None, parts: tuple[str, str] | None) -> None:
    assert split_ref(ref) == parts

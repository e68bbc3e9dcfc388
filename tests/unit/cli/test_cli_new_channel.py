"""`starling new channel` in a copy of the checkout: what it writes passes the contract, and so does the shortest channel."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starling_cli.app import build_app
from starling_cli.scaffold import new_channel
from starling_local.errors import UserError
from tests.contract.delivery.guide import source_of_the_guide

ROOT = Path(__file__).parents[3]
COPIED = (
    "services/delivery/starling_delivery", "libs/campaigns/starling_campaigns", "libs/common/starling_common", "schemas/avro",
    "tests/contract/delivery", "tests/unit/delivery", "tests/campaign_documents.py", "tools/settings_reference.py",
    "docs/reference/campaigns.md", "pyproject.toml",
)  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    made = CliRunner().invoke(build_app(), ["new", "channel", "ntfy", "--into", str(copy / "schemas")])
    assert made.exit_code == 0, made.output
    return copy


def run(checkout: Path, *command: str) -> str:
    sources = [checkout, *(checkout / name for name in ("services/delivery", "libs/campaigns", "libs/common"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sources))}
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pass_contract(checkout: Path) -> None:
    found = run(
        checkout, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract/delivery/test_ntfy_channel.py"
    )
    assert "[100%]" in found


def test_the_generated_channel_passes_its_contract(checkout: Path) -> None:
    pass_contract(checkout)


@pytest.mark.long
def test_the_shortest_channel_passes_in_less_than_60_lines(checkout: Path) -> None:
    path, test = checkout / "services/delivery/starling_delivery/channels/ntfy.py", "tests/contract/delivery/test_ntfy_channel.py"
    generated = path.read_text(), (checkout / test).read_text()
    channel, contract = source_of_the_guide("NtfyChannel"), source_of_the_guide("TestNtfy")
    path.write_text(channel)
    (checkout / test).write_text(contract)
    try:
        assert len((channel + contract).splitlines()) < 60
        pass_contract(checkout)
    finally:
        path.write_text(generated[0])
        (checkout / test).write_text(generated[1])


def test_the_generated_lists_know_the_channel(checkout: Path) -> None:
    program = """
from starling_campaigns import CHANNELS, parse_target
from starling_campaigns.channels import SENT_CHANNELS
from starling_common.kafka.topics import load_catalogue, request_topic, stage
from starling_delivery.channels import CAMPAIGN_CHANNELS
from starling_delivery.settings import EmailSettings
from tools.settings_reference import CONNECTIONS
assert "ntfy" in CHANNELS and "ntfy" in SENT_CHANNELS and set(CAMPAIGN_CHANNELS) == SENT_CHANNELS
assert parse_target({"key": "n", "channel": "ntfy", "url": "https://ntfy.example.com/a"}).settings["url"]
assert request_topic("ntfy") in load_catalogue().topics and request_topic("ntfy") in stage("email").inputs
assert EmailSettings.model_fields["ntfy"].annotation in CONNECTIONS
"""
    run(checkout, sys.executable, "-c", program)


def test_the_generated_code_is_clean(checkout: Path) -> None:
    ruff, paths = str(Path(sys.executable).parent / "ruff"), ("services", "libs/campaigns", "tools", "tests/contract/delivery")
    own = 'lint.isort.known-first-party = ["starling_*", "tests", "tools"]'  # the copy has some of the packages
    run(checkout, ruff, "check", "--config", own, *paths)
    run(checkout, ruff, "format", "--check", *paths)


def test_the_checkout_has_a_table_with_the_channel(checkout: Path) -> None:
    assert "| `webhook` | `body` |\n| `ntfy` | `text` |\n" in (checkout / "docs/reference/campaigns.md").read_text()


@pytest.mark.parametrize(
    "name", ["Fax", "1fax", "", "fax-machine", "class", "model_x", "../fax", "email", "slack", "push", "group", "http"]
)
def test_a_name_that_cannot_be_a_channel_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="name"):
        new_channel(ROOT, name)


def test_a_second_channel_of_the_name_and_another_version_are_refused(checkout: Path) -> None:
    with pytest.raises(UserError, match="already"):
        new_channel(checkout, "ntfy")
    path = checkout / "tools/settings_reference.py"
    before = path.read_text()
    path.write_text("nothing")
    try:
        with pytest.raises(UserError, match="the `starling` of the same version"):
            new_channel(checkout, "fax")
    finally:
        path.write_text(before)


def test_outside_of_a_checkout_the_command_names_the_cure(tmp_path: Path) -> None:
    made = CliRunner().invoke(build_app(), ["new", "channel", "fax", "--into", str(tmp_path)])
    assert made.exit_code != 0
    assert "--into" in str(made.exception) + made.output

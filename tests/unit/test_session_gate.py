"""The gate decides what a change concerns; options that make no sense are usage errors that name the known ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.lanes.lane import REPOSITORY
from fixtures.parsing import BadInput
from fixtures.session.gate import changed_paths, concern


def test_a_changed_patch_concerns_its_stack_and_the_stacks_lane() -> None:
    found = concern(["patches/stacks/gdn-ragged-drafts/manifest.toml"], stack=None, lane=None)
    assert (found.stack, found.lane) == ("gdn-ragged-drafts", "canary-cpu")
    assert any("manifest.toml changed" in reason for reason in found.reasons)


def test_nothing_of_interest_judges_the_default_and_says_so() -> None:
    found = concern(["README.md"], stack=None, lane=None)
    assert (found.stack, found.lane) == ("stock", "canary-cpu")
    assert "no patch, lane or suite changed" in found.reasons[0]


def test_a_changed_lane_and_a_changed_suite_concern_the_lane() -> None:
    assert (
        concern(["fixtures/lanes/canary-cpu-ragged.toml"], stack=None, lane=None).lane == "canary-cpu-ragged"
    )
    assert concern(["fixtures/prompts/canary-parity.json"], stack=None, lane=None).lane == "canary-cpu"


def test_two_changed_stacks_have_to_be_told_apart() -> None:
    paths = [f"patches/stacks/{name}/manifest.toml" for name in ("gdn-ragged-drafts", "cached-tokens-always")]
    with pytest.raises(BadInput, match="concerns 2 stacks"):
        concern(paths, stack=None, lane=None)
    assert concern(paths, stack="gdn-ragged-drafts", lane=None).stack == "gdn-ragged-drafts"


def test_an_unknown_base_is_bad_input(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(BadInput, match="git diff failed"):
        changed_paths("no-such-ref", tmp_path)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--lane", "nonsense"], "known lanes: canary-cpu"),
        (["--stack", "nonsense"], "known"),
        (["--gpu-pool", "nonsense"], "--gpu-pool 'nonsense' is not understood"),
        (["--subject", "nonsense"], "known"),
        (["--device", "nonsense:0"], "known"),
        (["--gate", "no-such-ref"], "git diff failed"),
        (["--gate", "HEAD", "-n", "2"], "leave out -n"),
    ],
)
def test_bad_options_are_usage_errors(options: list[str], said: str) -> None:
    """Exit code 4 and one message that lists what is known, before anything is collected or started."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/patches", *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4, done.stdout + done.stderr
    assert said in done.stderr + done.stdout

"""Lanes on top of other lanes, roles that are started differently, and what is said about files that do not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.arms.arm import make_arm
from fixtures.engine.launch import role_identities
from fixtures.lanes import lane as lanes
from fixtures.lanes.inheritance import with_arguments
from fixtures.lanes.lane import known_lanes, lanes_on, load_lane
from fixtures.parsing import BadInput

ROLES = """
[roles.target]
arguments = ["--compilation-config", "PIECEWISE", "--max-num-seqs", "1"]
without = ["--enforce-eager"]
environment = { GRAPHS = "0" }
stack = "stock"

[roles.candidate]
arguments = ["--compilation-config", "FULL"]
"""


def write(folder: Path, text: str, name: str = "mine") -> str:
    """A lane file of that name; returns its path."""
    path = folder / f"{name}.toml"
    path.write_text(f'name = "{name}"\n{text}')
    return str(path)


@pytest.fixture
def near(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of lanes with two of the repository in it."""
    for name in ("canary-cpu", "canary-cpu-uniform"):
        (tmp_path / f"{name}.toml").write_text((lanes.LANES / f"{name}.toml").read_text())
    monkeypatch.setattr(lanes, "LANES", tmp_path)
    return tmp_path


def test_a_lane_that_extends_another_says_only_what_differs() -> None:
    """Tables are merged, flags of the arguments too, and what is left out is gone."""
    base, faults = load_lane("canary-cpu"), load_lane("canary-cpu-faults")
    assert faults.model == base.model
    assert faults.speculation is not None
    assert (faults.speculation.method, faults.speculation.num_speculative_tokens) == ("scripted", 3)
    assert faults.thresholds.acceptance_floor_by_position == ()
    assert faults.suites.holdout is None
    changed = with_arguments(base.engine.arguments, ("--max-num-seqs", "4", "--max-num-batched-tokens", "64"))
    assert faults.engine.arguments == changed


def test_a_changed_flag_takes_its_place_and_a_new_one_the_end() -> None:
    words = with_arguments(("--a", "1", "--eager", "--b", "x", "y"), ("--c", "3", "--a", "2"), ("--eager",))
    assert words == ("--a", "2", "--b", "x", "y", "--c", "3")


def test_a_change_concerns_the_lanes_that_extend_it() -> None:
    assert lanes_on("canary-cpu-uniform") == ("canary-cpu-faults", "canary-cpu-ragged", "canary-cpu-uniform")
    assert lanes_on("no-such-lane") == ()
    assert set(known_lanes()) >= set(lanes_on("canary-cuda"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'extends = "canary-gpu"',
            r"mine\.toml:2: extends: unknown lane 'canary-gpu'; known lanes: canary-cpu,",
        ),
        ('extends = "mine"', r"mine\.toml:2: extends: 'mine' extends itself: mine -> mine"),
        ('without = ["suites.holdout"]', r"mine\.toml:2: without: nothing is inherited without `extends`"),
        (
            'extends = "canary-cpu"\nwithout = ["suites.holdoff"]',
            r"mine\.toml:3: without: 'suites\.holdoff' is not inherited from canary-cpu",
        ),
        (
            'extends = "canary-cpu"\nwithout = ["engine.arguments.--eager"]',
            r"without: 'engine\.arguments\.--eager' is not inherited",
        ),
        ('extends = "canary-cpu"', r"mine\.toml:1: description: Field required"),
        (
            'extends = "canary-cpu"\ndescription = "x"\n[thresholds]\ncanary_repeats = 0',
            r"mine\.toml:5: thresholds\.canary_repeats: Input should be greater",
        ),
    ],
    ids=["unknown", "itself", "nothing-below", "not-there", "no-such-flag", "own-description", "own-value"],
)
def test_a_lane_that_does_not_fit_is_refused_with_file_line_and_field(
    near: Path, text: str, says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        load_lane(write(near, text))


def test_a_wrong_value_is_shown_in_the_file_where_it_stands(near: Path) -> None:
    """It was written in the lane below: that is the file to mend."""
    below = near / "canary-cpu.toml"
    below.write_text(below.read_text().replace('version = "0.32.0"', "version = 32"))
    with pytest.raises(BadInput, match=r"canary-cpu\.toml:\d+: engine\.version"):
        load_lane(write(near, 'extends = "canary-cpu"\ndescription = "x"'))


def test_target_and_candidate_can_be_started_differently(near: Path) -> None:
    """Other arguments, environment and stack, in the launch specs and in the identity; nothing else differs."""
    lane = load_lane(write(near, f'extends = "canary-cpu"\ndescription = "x"\n{ROLES}'))
    target = make_arm(lane, "target", stack="spec-round-trace")
    candidate = make_arm(lane, "candidate", stack="spec-round-trace")
    assert (target.spec.stack, candidate.spec.stack) == ("stock", "spec-round-trace")
    assert target.label == "target#1"
    assert "--enforce-eager" not in target.spec.arguments
    assert target.spec.arguments[-2:] == ("--compilation-config", "PIECEWISE")
    assert dict(target.spec.environment)["GRAPHS"] == "0"
    assert "GRAPHS" not in dict(candidate.spec.environment)
    at = candidate.spec.arguments.index("--compilation-config")
    assert candidate.spec.arguments[at + 1] == "FULL"
    assert "--enforce-eager" in candidate.spec.arguments
    identities = role_identities(lane, "spec-round-trace")
    assert identities["target"]["stack"] != identities["candidate"]["stack"]
    assert identities["target"]["arguments"] == list(target.spec.arguments)


def test_a_role_cannot_leave_out_what_is_not_there(near: Path) -> None:
    text = 'extends = "canary-cpu"\ndescription = "x"\n[roles.target]\nwithout = ["--eager"]'
    with pytest.raises(BadInput, match=r"roles\.target: without --eager: there is no such argument"):
        load_lane(write(near, text))


def test_without_roles_both_are_started_as_the_engine_says() -> None:
    lane = load_lane("canary-cpu")
    identities = role_identities(lane, "stock")
    assert identities["target"] == identities["candidate"]
    assert identities["target"]["arguments"] == list(lane.engine.arguments)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("elsewhere = true", "engine.elsewhere needs engine.command"),
        ('command = ["a", "{port}"]\nlauncher = ["b"]', "engine.command is the whole command"),
    ],
)
def test_a_command_and_what_does_not_go_with_it(near: Path, engine: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        load_lane(write(near, f'extends = "canary-cpu"\ndescription = "x"\n[engine]\n{engine}'))


@pytest.mark.parametrize("name", ["canary-xpu", "canary-xpu-tp2", "prose-xpu"])
def test_lanes_for_intel_gpus_take_nothing_of_cuda_over(name: str) -> None:
    """They extend the lanes for CUDA: what those say of CUDA's own kernels would be refused or ignored there."""
    lane = load_lane(name)
    said = " ".join([*lane.engine.arguments, *lane.engine.environment])
    assert lane.topology.device == "xpu"
    assert not [word for word in ("FLASH", "triton", "DEEP_GEMM", "attention-backend") if word in said]
    assert lane.thresholds.same_window_band != load_lane("canary-cuda").thresholds.same_window_band

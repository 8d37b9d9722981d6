"""Schemas are read out of a wheel without importing it, and compared with those that are kept."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from fixtures.gdn.schemas.__main__ import main
from fixtures.gdn.schemas.wheel import compare, schemas_of_wheel
from fixtures.parsing import BadInput

STRINGS = (
    b"\x7fELF\x00\x01",
    b"step(Tensor! out, Tensor q,int heads, Tensor? bias=None) -> ()\x00",
    b"two(Tensor a, int[] sizes) -> Tensor[]\x00expected (a) -> b in call(x) -> y\x00",
)


def wheel(folder: Path, *parts: bytes) -> Path:
    """A wheel with one shared object."""
    path = folder / "kernels-1.0-cp38-abi3-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("kernels/_C.abi3.so", b"".join(parts))
        archive.writestr("kernels/__init__.py", "")
    return path


def test_schemas_are_found_between_other_bytes(tmp_path: Path) -> None:
    """What is no schema is left alone."""
    found = schemas_of_wheel(wheel(tmp_path, *STRINGS))
    assert sorted(found) == ["step", "two"]
    assert found["two"] == ("two(Tensor a, int[] sizes) -> Tensor[]",)


def test_a_schema_that_differs_is_said_op_by_op(tmp_path: Path) -> None:
    """White space and the library's name are no difference; an argument is; so is an operator that is not there."""
    found = schemas_of_wheel(wheel(tmp_path, *STRINGS))
    kept = {
        "step": "_xpu_C::step(Tensor! out, Tensor q, int heads, Tensor? bias=None) -> ()",
        "two": "_xpu_C::two(Tensor a, int size) -> Tensor[]",
        "three": "_xpu_C::three() -> ()",
    }
    differences = compare(kept, found)
    assert [d.operator for d in differences] == ["two", "three"]
    assert str(differences[1]) == "three: not in the wheel"


@pytest.mark.parametrize("content", [b"no zip", None])
def test_what_is_no_wheel_is_refused_in_words(tmp_path: Path, content: bytes | None) -> None:
    """A missing file, and a file that is none."""
    path = tmp_path / "x.whl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match="no such file" if content is None else "no wheel"):
        schemas_of_wheel(path)


def test_the_command_ends_with_1_where_something_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wheel without our operators."""
    assert main([str(wheel(tmp_path, *STRINGS))]) == 1
    assert "0 of 12 schemas agree" in capsys.readouterr().out

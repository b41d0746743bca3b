"""References to secrets: only what is allowed, only what is a small regular file, and never with a wait."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.common.secret import Secret
from spark_producer.errors import ConfigError
from spark_producer.security import references
from spark_producer.security.references import ALLOW_VARIABLE, MAX_FILE_BYTES, is_reference, resolve

NOTHING: Mapping[str, str] = {}
CANARY = "canary-of-this-test"


def refusal(reference: str, *allowed: str, environ: Mapping[str, str] = NOTHING) -> str:
    """Why a reference is refused. Neither the error nor any frame of ours shows the secret."""
    with pytest.raises(ConfigError) as refused:
        resolve(Secret(reference), allowed, environ, name="kafka.sasl.password")
    assert refused.value.__dict__ == {"fatal": True}
    frames = [frame for frame, _ in traceback.walk_tb(refused.tb) if frame.f_code.co_filename == references.__file__]
    assert frames
    assert CANARY not in str(refused.value) + "".join(repr(frame.f_locals) for frame in frames)
    return str(refused.value)


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize(
    "text", ["", "app-pw", "$ConnectionString", "${}", "${env}", "${x}", "a${b}", "$env:X", "}{", "${1:2}", "a}${b:c}d"]
)
def test_what_is_no_reference_is_taken_as_it_is(text: str) -> None:
    assert resolve(Secret(text), (), NOTHING) == text


@pytest.mark.covers("SEC41")
@given(st.text().filter(lambda text: "${" not in text))
def test_any_password_without_a_reference_is_taken_as_it_is(text: str) -> None:
    assert resolve(Secret(text), (), NOTHING) == text
    assert not is_reference(text)


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        (["env:KAFKA_PASSWORD"], True),
        (["env:KAFKA_*"], True),
        (["env:*"], True),
        (["env:OTHER", " env:KAFKA_P* "], True),
        ([], False),
        (["env:KAFKA_PASSWOR"], False),
        (["env:KAFKA_PASSWORDS"], False),
        (["env:kafka_*"], False),
        (["file:/"], False),
        (["env:"], False),
    ],
)
def test_a_variable_is_read_if_a_rule_allows_it(rules: list[str], taken: bool) -> None:
    environ = {"KAFKA_PASSWORD": CANARY}
    if taken:
        assert resolve(Secret("${env:KAFKA_PASSWORD}"), rules, environ) == CANARY
    else:
        assert "Add env:KAFKA_PASSWORD to secretsAllow" in refusal("${env:KAFKA_PASSWORD}", *rules, environ=environ)


@pytest.mark.covers("SEC41")
def test_nothing_is_allowed_by_default_and_the_environment_of_the_platform_wins() -> None:
    both = {"A": CANARY, "B": CANARY}
    platform = both | {ALLOW_VARIABLE: "env:A , file:/x/"}
    assert resolve(Secret("${env:A}"), ["env:B"], platform) == CANARY
    assert "not allowed" in refusal("${env:B}", "env:B", environ=platform)
    assert "not allowed" in refusal("${env:B}", "env:B", environ=both | {ALLOW_VARIABLE: ""})
    assert "not allowed" in refusal("${env:B}", environ=both)


@pytest.mark.covers("SEC41")
def test_the_environment_is_that_of_the_process_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first", "second"):
        monkeypatch.setenv("PYPRODUCER_TEST_SECRET", value)
        assert resolve(Secret("${env:PYPRODUCER_TEST_SECRET}"), ["env:PYPRODUCER_TEST_*"]) == value


@pytest.mark.covers("SEC41")
def test_a_file_is_read_again_without_its_last_newline(tmp_path: Path) -> None:
    file = tmp_path / "password"
    reference, rules = Secret(f"${{file:{file}}}"), [f"file:{tmp_path}/"]
    for content, text in [(b"a", "a"), (b"b\n", "b"), (b"c\n\n", "c\n"), (b"d\r\n", "d"), (b" e ", " e "), (b"", "")]:
        file.write_bytes(content)
        assert resolve(reference, rules, NOTHING) == text
    assert resolve(reference, [f"file:{tmp_path}"], NOTHING) == ""


@pytest.mark.covers("SEC41")
def test_one_property_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text(f"# passwords\nsasl.password = {CANARY}\nwith\\:colon=x\n", encoding="utf-8")
    rules = [f"file:{tmp_path}/"]
    assert resolve(Secret(f"${{file:{file}:sasl.password}}"), rules, NOTHING) == CANARY
    assert resolve(Secret(f"${{file:{file}:with:colon}}"), rules, NOTHING) == "x"
    assert "no such property" in refusal(f"${{file:{file}:password}}", *rules)


@pytest.mark.covers("SEC41")
def test_a_mounted_secret_of_kubernetes_is_symbolic_links_inside_the_mount(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    (mount / "..2026_11_23").mkdir(parents=True)
    (mount / "..2026_11_23" / "password").write_text(CANARY, encoding="utf-8")
    (mount / "..data").symlink_to("..2026_11_23")
    (mount / "password").symlink_to("..data/password")
    alias = tmp_path / "alias"
    alias.symlink_to(mount)
    for folder in (mount, alias):
        assert resolve(Secret(f"${{file:{folder}/password}}"), [f"file:{alias}/"], NOTHING) == CANARY


@pytest.mark.covers("SEC41")
def test_no_link_and_no_dots_lead_out_of_what_is_allowed(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    (tmp_path / "mount-of-others").mkdir()
    for outside in (tmp_path / "outside", tmp_path / "mount-of-others" / "file"):
        outside.write_text(CANARY, encoding="utf-8")
    (mount / "link").symlink_to(tmp_path / "outside")
    (mount / "folder").symlink_to(tmp_path)
    for path in (
        "link",
        "../outside",
        "folder/outside",
        "x/../../outside",
        "../mount-of-others/file",
        "../mount/../outside",
    ):
        assert "not allowed" in refusal(f"${{file:{mount}/{path}}}", f"file:{mount}/"), path
    assert "not allowed" in refusal(f"${{file:{mount}-of-others/file}}", f"file:{mount}")
    assert "not allowed" in refusal("${file:/etc/passwd}", f"file:{mount}/", "env:*")


@pytest.mark.covers("SEC41")
def test_a_folder_that_becomes_a_link_after_the_rule_was_applied_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = tmp_path / "mount" / "folder", tmp_path / "outside"
    for folder, text in ((inside, "inside"), (outside, CANARY)):
        folder.mkdir(parents=True)
        (folder / "file").write_text(text, encoding="utf-8")
    open_file = os.open

    def exchanged(path: str, flags: int) -> int:
        inside.rename(tmp_path / "mount" / "former")
        inside.symlink_to(outside)
        return open_file(path, flags)

    monkeypatch.setattr(os, "open", exchanged)
    assert "replaced meanwhile" in refusal(f"${{file:{inside}/file}}", f"file:{tmp_path}/mount/")


@pytest.mark.covers("SEC41")
def test_a_link_that_vanishes_while_it_is_followed_is_our_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to("file")

    def vanished(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr(os, "readlink", vanished)
    assert "was removed meanwhile" in refusal(f"${{file:{tmp_path}/link}}", f"file:{tmp_path}/")


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "socket", "absent", "loop"])
def test_only_regular_files_are_opened_and_nothing_waits(kind: str, tmp_path: Path) -> None:
    path, rule = tmp_path / kind, f"file:{tmp_path}/"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "device":
            path, rule = Path("/dev/zero"), "file:/dev/"
        case "folder":
            path.mkdir()
        case "socket":
            import socket

            with socket.socket(socket.AF_UNIX) as unix:
                unix.bind(os.path.relpath(path))
        case "loop":
            path.symlink_to(path)
    assert ("cannot be read" if kind in ("absent", "loop") else "not a regular file") in refusal(
        f"${{file:{path}}}", rule
    )


@pytest.mark.covers("SEC41")
def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "huge"
    file.write_text("x" * MAX_FILE_BYTES, encoding="utf-8")
    assert len(resolve(Secret(f"${{file:{file}}}"), [f"file:{tmp_path}/"], NOTHING)) == MAX_FILE_BYTES
    file.write_text("x" * (MAX_FILE_BYTES + 1), encoding="utf-8")
    assert "larger than 64 KiB" in refusal(f"${{file:{file}}}", f"file:{tmp_path}/")
    os.truncate(file, 1 << 40)
    assert "larger than 64 KiB" in refusal(f"${{file:{file}}}", f"file:{tmp_path}/")


@pytest.mark.covers("SEC41")
def test_a_file_that_is_no_text_is_refused_without_showing_it(tmp_path: Path) -> None:
    file = tmp_path / "binary"
    file.write_bytes(CANARY.encode() + b"\xff")
    assert "not UTF-8" in refusal(f"${{file:{file}}}", f"file:{tmp_path}/")


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("${env:ABSENT}", "not set"),
        ("${env:}", "letters, digits"),
        ("${env:A B}", "letters, digits"),
        ("${env:A:b}", "letters, digits"),
        ("${env:${env:A}}", "another one"),
        ("${file:/x/${env:A}}", "another one"),
        ("${env:A}${env:B}", "another one"),
        ("x${env:A}", "whole value"),
        ("${env:A} x", "whole value"),
        ("${env:A", "whole value"),
        ("${file:relative}", "absolute"),
        ("${file:}", "absolute"),
        ("${file:/x\0y}", "absolute"),
        ("${file:/x\ud800}", "absolute"),
        ("${directory:/x:y}", "not 'directory'"),
        ("${vault:a:b}", "not 'vault'"),
    ],
)
def test_what_is_not_written_as_a_reference_is_refused(reference: str, reason: str) -> None:
    assert reason in refusal(reference, "env:*", "file:/")


@pytest.mark.covers("SEC41")
def test_what_a_reference_gives_is_not_resolved_again(tmp_path: Path) -> None:
    environ = {"A": "${env:B}", "B": CANARY, "C": "x${env:B}"}
    assert "reference again" in refusal("${env:A}", "env:*", environ=environ)
    assert resolve(Secret("${env:C}"), ["env:*"], environ) == "x${env:B}"


@pytest.mark.covers("SEC41")
@pytest.mark.parametrize("rule", ["env", "env:A*B", "env:A.*", "file:relative", "file:", "*", "${env:A}", "dir:/x"])
def test_a_rule_without_meaning_is_refused(rule: str) -> None:
    assert "secretsAllow: " in refusal("${env:A}", rule)
    assert f"{ALLOW_VARIABLE}: " in refusal("${env:A}", environ={ALLOW_VARIABLE: f"env:A,{rule}"})


@pytest.mark.covers("SEC41")
@given(st.text(max_size=30), st.sampled_from(["${env:%s}", "${file:%s}", "${file:/%s}", "%s${env:X}", "${%s:x}"]))
def test_whatever_is_written_only_our_error_comes(text: str, form: str) -> None:
    written = form.replace("%s", text)
    try:
        assert resolve(Secret(written), ["file:/nowhere/", "env:X"], {"X": "value"}) in (written, "value")
    except ConfigError as refused:
        printable = str(refused).isprintable()
        assert printable  # either way is right

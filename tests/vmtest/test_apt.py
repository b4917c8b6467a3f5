# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vmtest import VmtestError, apt

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = apt.Archives("http://packages.test/debian", "http://packages.test/security")


def test_archives_takes_debian_and_its_security_updates() -> None:
    targets = (
        "Vendor|Vendor|bookworm|https://vendor.test/apt/\n"
        "Debian|Debian|bookworm|http://packages.test/debian/\n"
        "Debian|Debian|bookworm-updates|http://other.test/debian/\n"
        "Debian|Debian-Security|bookworm-security|http://packages.test/security/\n"
    )
    assert apt.archives(targets) == apt.Archives("http://packages.test/debian/", "http://packages.test/security/")


def test_archives_without_a_security_archive_uses_the_main_one() -> None:
    assert apt.archives("Debian|Debian|sid|http://a.test/d/\n") == apt.Archives("http://a.test/d/", "http://a.test/d/")


@pytest.mark.parametrize(
    "targets",
    ["", "|||http://unfetched.test/\n", "Vendor|Debian|bookworm|http://v.test/\n"],
    ids=["no source", "lists never fetched", "another origin"],
)
def test_archives_takes_no_other_publishers(targets: str) -> None:
    assert apt.archives(targets) is None


def test_source_list_names_the_suite_and_its_updates(tmp_path: Path) -> None:
    text = apt.source_list("bullseye", KNOWN, with_updates=True, keyring=tmp_path / "none")
    assert text.splitlines() == [
        "deb http://packages.test/debian bullseye main",
        "deb http://packages.test/security bullseye-security main",
        "deb http://packages.test/debian bullseye-updates main",
    ]


def test_source_list_binds_a_suite_to_debians_keys(tmp_path: Path) -> None:
    keyring = tmp_path / "keys.gpg"
    keyring.touch()
    text = apt.source_list("sid", KNOWN, with_updates=False, keyring=keyring)
    assert text == f"deb [signed-by={keyring}] http://packages.test/debian sid main\n"


def test_fields_are_those_of_the_first_paragraph() -> None:
    text = "Package: a\nDescription: one\n continued: not a field\nDepends: b (= 1)\n\nPackage: old\nDepends: c\n"
    assert apt.fields(text) == {"Package": "a", "Description": "one", "Depends": "b (= 1)"}


def test_kernel_packages_of_one_package() -> None:
    depends = {
        "linux-image-amd64": "linux-image-6.12.1+deb13-amd64 (= 6.12.1-1)",
        "linux-image-6.12.1+deb13-amd64": "kmod, initramfs-tools (>= 0.1) | linux-initramfs-tool",
    }
    assert apt.kernel_packages("linux-image-amd64", depends.__getitem__) == ["linux-image-6.12.1+deb13-amd64"]


def test_kernel_packages_of_image_binary_and_modules_apart() -> None:
    image, binary, modules = (f"linux-{part}-7.2.1+deb14-amd64" for part in ("image", "binary", "modules"))
    depends = {
        "linux-image-amd64": f"linux-base-amd64 (= 7.2.1-1), {image} (= 7.2.1-1)",
        image: f"dracut | initramfs-tools, linux-base-7.2.1+deb14-amd64, {binary} (= 7.2.1-1), {modules} (= 7.2.1-1)",
        binary: "linux-base-7.2.1+deb14-amd64 (= 7.2.1-1)",
        modules: f"kmod, {binary}",
    }
    assert apt.kernel_packages("linux-image-amd64", depends.__getitem__) == [image, binary, modules]


def test_run_says_why_a_program_failed() -> None:
    with pytest.raises(VmtestError, match="sh ended with 3: last words"):
        apt.run(("sh", "-c", "echo first >&2; echo last words >&2; exit 3"))


def test_run_of_a_program_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(VmtestError, match="--setup"):
        apt.run(("/nonexistent/program",))

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from hopscope.agent.target import Target, parse_all
from hopscope.errors import UsageError


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("web1", Target("ssh", "web1", "web1")),
        ("root@web1.example.com", Target("ssh", "root@web1.example.com", "web1.example.com")),
        ("ssh://root@web1:2222", Target("ssh", "ssh://root@web1:2222", "web1")),
        ("ssh://web1", Target("ssh", "ssh://web1", "web1")),
        ("fe80::1,name=a", Target("ssh", "fe80::1", "a")),
        ("ssh://[fe80::1]:22,name=a", Target("ssh", "ssh://[fe80::1]:22", "a")),
        ("tls://web1:7777", Target("tls", "web1:7777", "web1")),
        ("tls://[::1]:7777,name=six", Target("tls", "[::1]:7777", "six")),
        ("local", Target("local", "local", "local")),
        ("local,name=here", Target("local", "local", "here")),
        ("web1,name=a,address=10.0.0.1", Target("ssh", "web1", "a", "10.0.0.1")),
        ("web1,address=2001:DB8::1", Target("ssh", "web1", "web1", "2001:db8::1")),
    ],
)
def test_target_says_how_a_host_is_reached(text: str, target: Target) -> None:
    assert Target.parse(text) == target


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is no host ''"),
        ("-oProxyCommand=evil", "there is no host"),
        ("web 1", "there is no host"),
        ("web1\n", "there is no host"),
        ("web1,port=3", "'port=3' is not a setting of a host"),
        ("web1,name", "'name' is not a setting"),
        ("web1,name=a,name=b", "'name=b' is not a setting"),
        ("web1,name=", "'' cannot be the name"),
        ("web1,name=../a", "'../a' cannot be the name"),
        ("web1,name=.a", "'.a' cannot be the name"),
        ("web1,name=a/b", "'a/b' cannot be the name"),
        ("web1,name=" + "a" * 65, "cannot be the name"),
        ("fe80::1", "'fe80::1' cannot be the name of a host. Add ,name=NAME"),
        ("web1,address=web2", "'web2' is not an IP address"),
        ("tls://web1", "neither ssh://"),
        ("tls://user@web1:1", "neither ssh://"),
        ("http://web1:1", "neither ssh://"),
        ("tls://web1:99999", "there is no host"),
        ("ssh://web1/path", "there is no host"),
        ("ssh://-oProxyCommand=evil", "there is no host"),
    ],
)
def test_what_names_no_host_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Target.parse(text)


def test_names_are_unique() -> None:
    assert [target.name for target in parse_all(["a", "b"])] == ["a", "b"]
    with pytest.raises(UsageError, match=r"Two hosts are called a\. Give one of them another name"):
        parse_all(["a", "root@a"])

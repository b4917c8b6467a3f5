# SPDX-License-Identifier: Apache-2.0
"""Values that nobody expects: where text, a number, or anything of JSON should be."""

from __future__ import annotations

import math

from hypothesis import strategies as st

ESCAPE = "\x1b]0;x\x07\x9b31m"
TEXTS = (
    *("", " ", "-", "--", ".", "..", "/", "*", "%s", "%n", "{0}", "a,b", "a=b", "a:b", "a>b", "[", "]:", "\\",
     "'", '"', ";--"),
    *("\t", "\n", "\r", "\x01", "\x7f", "\x85", "\u2028", "\u202e", "\udc80", "\U0010ffff", "é", "²", "٣", "x" * 5_000),
    *(ESCAPE, "nan", "inf", "-inf", "1e300", "-1e300", "1e-300", "1_0", "0x10", "+1", "-1", "-0", "0", "1",
     "1.5", "9" * 400),
    *("9" * 5_000, str(2**31), str(2**32), str(2**63), str(2**64), str(-(2**63)), "1ms", "5M", "1e9d", "999999999999w"),
    *("true", "null", "None", "drop", "all", "any", "local", "0.0.0.0/0", "::/0", "::1%lo", "1.2.3.4/33",
     "[::1]:80", ":80"),
    *("/dev/null/x", "/proc/self/mem", "~", "$(id)", "a\nb"),
)  # fmt: skip

# By number: Hypothesis writes down what it draws from.
texts = st.integers(0, len(TEXTS) - 1).map(lambda number: TEXTS[number]) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12
)
numbers = st.sampled_from(
    [0, -1, 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 2**70, 10**400, 0.5, -0.0,
    1e300, math.nan, math.inf]
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=4,
)


def spoken(words: tuple[tuple[str, ...], ...]) -> st.SearchStrategy[str]:
    """Draw sentences of a language: some of its words one after the other, each followed by a blank or by nothing."""
    word = st.one_of([st.sampled_from(each) for each in words]) | texts
    return st.lists(st.tuples(word, st.sampled_from(["", " "])), max_size=10).map(
        lambda drawn: "".join(text + blank for text, blank in drawn)
    )

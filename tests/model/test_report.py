# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

from hopscope.model.report import Column, Report, of_rows

NAME, TIME = Column("name", "text", "", "name"), Column("time_ns", "ns", "", "time")


def test_rows_come_back_as_they_were_given_missing_ones_as_none() -> None:
    rows = [("a", 1), (None, 2), ("c", None)]
    report = of_rows("any", (NAME, TIME), rows)
    assert list(report.rows()) == rows
    assert len(report) == 3
    assert report.column("time_ns") == [1, 2, None]


def test_report_without_rows_has_length_0() -> None:
    assert len(of_rows("any", (NAME, TIME), [])) == 0


def test_values_of_numpy_become_pythons() -> None:
    times = np.ma.MaskedArray(np.array([1.23456789, np.nan, 3.0]), [False, False, True])
    (value, not_a_number, missing) = Report("any", (TIME,), {"time_ns": times}).column("time_ns")
    assert (value, not_a_number, missing) == (1.23457, None, None)
    assert type(Report("any", (TIME,), {"time_ns": np.array([7], np.int64)}).column("time_ns")[0]) is int

# SPDX-License-Identifier: Apache-2.0
"""Write hopscope.json, a dashboard for Grafana of what `hopscope serve` measures: python dashboard.py > hopscope.json.

It needs `pip install grafana-foundation-sdk`. A Prometheus that reads native histograms does not store the classic ones
as well by default, so that each query asks for both forms and takes the one that is there (Prometheus 2.40 or newer).
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Final, TypeAlias

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

if TYPE_CHECKING:
    from collections.abc import Iterator

_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HOSTS: Final = 'instance=~"$instance"'
# Those that a service without --group-by does not have match everything, as all of them is ".*".
_GROUPS: Final = ("interface", "namespace", "cgroup", "k8s_namespace", "k8s_pod", "k8s_container")
_HOPS: Final = ",".join([_HOSTS, *(f'{name}=~"${name}"' for name in _GROUPS)])
_WINDOW: Final = "[$__rate_interval]"
_WAYS: Final = {"receive": 'hop=~"rx.(tcp|udp)_total"', "transmit": 'hop=~"tx.(udp_)?total"'}
_WIDTH: Final = 24
_PANEL_HEIGHT, _STAT_HEIGHT = 9, 4

Panel: TypeAlias = timeseries.Panel | stat.Panel | table.Panel | heatmap.Panel
Query: TypeAlias = prometheus.Dataquery


def make() -> str:
    """Return the dashboard, as Grafana imports it."""
    made = (
        dashboard.Dashboard("Network stack (hopscope)")
        .uid("hopscope")
        .tags(["hopscope", "network"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    for variable in _variables():
        made = made.with_variable(variable)
    for title, panels in (
        ("Is anything wrong?", _overview()),
        ("Receive: from the driver to the application", _hops("receive")),
        ("Transmit: from the application to the driver, and acknowledged", _hops("transmit")),
        ("Dropped packets", _drops()),
        ("CPU time of networking", _cpu()),
        ("Sockets", _sockets()),
        ("Findings of hopscope check", _findings()),
        ("What measuring costs, and what it covers", _own()),
    ):
        made = made.with_row(dashboard.Row(title))
        for panel in panels:
            made = made.with_panel(panel)
    return json.dumps(made.build(), cls=JSONEncoder, indent=2, sort_keys=True)


def _variables() -> Iterator[dashboard.DatasourceVariable | dashboard.QueryVariable]:
    yield dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
    yield _variable("instance", "label_values(hopscope_build_info, instance)")
    for name in _GROUPS:
        yield _variable(
            name, f"label_values({{__name__=~'hopscope_(receive|transmit)_hop_seconds(_count)?',{_HOSTS}}}, {name})"
        )


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(name.replace("_", " ").capitalize())
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".*")
    )


def _overview() -> Iterator[Panel]:
    for severity, colour in (("critical", "red"), ("warning", "orange")):
        yield _number(
            f"Findings: {severity}", f'sum(hopscope_findings{{{_HOSTS},severity="{severity}"}})', "short",
            ((1, colour),),
        )  # fmt: skip
    yield _number(
        "Packets dropped", f"sum(rate(hopscope_dropped_packets_total{{{_HOSTS}}}{_WINDOW}))", "pps", ((100, "orange"),)
    )
    yield _number(
        "99 % of packets read within", _quantile("receive", 0.99, (), _WAYS["receive"]), "s", ((0.05, "orange"),)
    )
    yield _number(
        "99 % of messages acknowledged within", _quantile("transmit", 0.99, (), _WAYS["transmit"]), "s",
        ((0.5, "orange"),),
    )  # fmt: skip
    yield _number(
        "Collectors that do not measure", f"sum(hopscope_collector_up{{{_HOSTS}}} == bool 0)", "short", ((1, "red"),)
    )


def _hops(way: str) -> Iterator[Panel]:
    for percent in (50, 99):
        yield _lines(
            f"p{percent} by hop", "s", [(_quantile(way, percent / 100, ("hop",)), "{{hop}}")],
            f"{percent} % of packets, messages or polls spent less in it. Within a native bucket of 9 %, or a classic "
            "one of a factor of two.",
        ).scale_distribution(common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))  # fmt: skip
    yield _lines(
        "p99 of the whole path, by group", "s",
        [(_quantile(way, 0.99, ("instance", *_GROUPS), _WAYS[way]),
          " ".join(f"{{{{{name}}}}}" for name in ("instance", *_GROUPS)))],
        "By what --group-by says: interface and namespace, or cgroup, or with --kubernetes, pod. Without it, by host.",
    ).scale_distribution(common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))  # fmt: skip
    yield _heat("The whole path, all of it", f"hopscope_{way}_hop_seconds", f"{_HOPS},{_WAYS[way]}")
    name = f"hopscope_{way}_hop_seconds"
    count = f"histogram_count(rate({name}{{{_HOPS}}}{_WINDOW})) or rate({name}_count{{{_HOPS}}}{_WINDOW})"
    yield _lines("Samples by hop", "cps", [(f"sum by (hop, unit) ({count})", "{{hop}} ({{unit}})")])
    discarded = f"hopscope_{way}_discarded_samples_total{{{_HOSTS}}}"
    yield _lines(
        "Samples that could not be used", "cps",
        [(f"sum by (hop, reason) (rate({discarded}{_WINDOW}))", "{{hop}}: {{reason}}")],
        "They are in no histogram: docs/rx.md and docs/tx.md have the reasons.",
    )  # fmt: skip


def _drops() -> Iterator[Panel]:
    rates = f"rate(hopscope_dropped_packets_total{{{_HOSTS}}}{_WINDOW})"
    yield _lines("By reason", "pps", [(f"sum by (reason) ({rates})", "{{reason}}")], stacked=True)
    yield _lines("By place", "pps", [(f"sum by (location) ({rates})", "{{location}}")], stacked=True)
    yield _rows(
        "Most dropped packets in the selected time",
        "topk(20, sum by (instance, reason, location) "
        f"(increase(hopscope_dropped_packets_total{{{_HOSTS}}}[$__range])))",
        "Packets",
    )
    yield _lines(
        "What became of received packets", "pps",
        [(f"sum by (fate) (rate(hopscope_receive_packets_total{{{_HOSTS}}}{_WINDOW}))", "{{fate}}")],
        "With --budget none alone: with a budget, not each packet is followed.",
    )  # fmt: skip


def _cpu() -> Iterator[Panel]:
    seconds = f"rate(hopscope_cpu_seconds_total{{{_HOSTS}}}{_WINDOW})"
    yield _lines("By part of the stack, in CPUs", "short", [(f"sum by (part) ({seconds})", "{{part}}")], stacked=True)
    yield _lines("By host, in CPUs", "short", [(f"sum by (instance) ({seconds})", "{{instance}}")])


def _sockets() -> Iterator[Panel]:
    states = f"sum by (protocol, state) (hopscope_sockets{{{_HOSTS}}})"
    yield _lines("By protocol and state", "short", [(states, "{{protocol}} {{state}}")])
    yield _lines(
        "Bytes in queues", "bytes", [(f"sum by (queue) (hopscope_socket_queue_bytes{{{_HOSTS}}})", "{{queue}}")]
    )
    yield _lines(
        "Waiting, or in trouble", "short",
        [(f"sum(hopscope_socket_accept_queue_connections{{{_HOSTS}}})", "connections that wait to be accepted"),
         (f"sum(hopscope_sockets_in_trouble{{{_HOSTS}}})", "sockets with a sign of trouble")],
        "`hopscope sockets` on the host names them.",
    )  # fmt: skip


def _findings() -> Iterator[Panel]:
    severities = f"sum by (severity) (hopscope_findings{{{_HOSTS}}})"
    yield _lines("By severity", "short", [(severities, "{{severity}}")], stacked=True)
    yield _rows(
        "What is found now",
        f'sum by (instance, severity, layer, finding) (hopscope_finding_places{{{_HOSTS},severity!="note"}} > 0)',
        "Places",
        "`hopscope check` on the host says what it is and what to do.",
    )
    yield _lines(
        "Conditions looked at", "short", [(f"sum by (state) (hopscope_checks{{{_HOSTS}}})", "{{state}}")],
        "unseen: what the service has no right to look at, or this kernel does not have.",
    )  # fmt: skip


def _own() -> Iterator[Panel]:
    yield _lines(
        "CPU time of measuring", "percentunit",
        [(f"sum by (instance) (rate(hopscope_process_cpu_seconds_total{{{_HOSTS}}}{_WINDOW}))", "{{instance}}: reader"),
         (f"sum by (instance, collector) (hopscope_bpf_cpu_ratio{{{_HOSTS}}})",
          "{{instance}}: {{collector}} in the kernel")],
        "Of one CPU. --budget limits the sum for a host.",
    )  # fmt: skip
    for name, what in (("open", "Time in which hops were measured"), ("followed", "Share of packets measured")):
        yield _lines(
            what, "percentunit", [(_share(way, name), f"{{{{instance}}}}: {way}") for way in _WAYS],
            "With --budget none, all of them are, and there is nothing here.",
        ).min(0).max(1)  # fmt: skip
    yield _lines(
        "Losses", "cps",
        [(f"sum by (instance, collector) (rate(hopscope_{name}_total{{{_HOSTS}}}{_WINDOW}))",
          f"{{{{instance}}}}: {{{{collector}}}}, {what}")
         for name, what in (("lost_records", "no room"), ("missed_runs", "suppressed"))],
        "Where these are not 0, counts are too low.",
    )  # fmt: skip
    yield _lines(
        "Age of the figures", "s",
        [(f"time() - hopscope_measured_timestamp_seconds{{{_HOSTS}}}", "{{instance}}")],
    )  # fmt: skip
    yield _rows(
        "Probe points that are not attached",
        f"sum by (instance, point) (hopscope_point_attached{{{_HOSTS}}} == bool 0) > 0",
        "Missing",
        "`hopscope probes` on the host says why, and what would help.",
    )


def _quantile(way: str, part: float, by: tuple[str, ...], hops: str = "") -> str:
    """Return the quantile of hops, of the form that Prometheus has stored; groups without samples are left out."""
    selected = f"{_HOPS},{hops}" if hops else _HOPS
    native = f"sum by ({', '.join(by)}) (rate(hopscope_{way}_hop_seconds{{{selected}}}{_WINDOW}))"
    classic = f"sum by ({', '.join((*by, 'le'))}) (rate(hopscope_{way}_hop_seconds_bucket{{{selected}}}{_WINDOW}))"
    return f"(histogram_quantile({part}, {native}) or histogram_quantile({part}, {classic})) >= 0"


def _share(way: str, name: str) -> str:
    """Return which part of the time that histograms are of was measured."""
    parts = (f"sum by (instance) (rate(hopscope_{way}_{each}_seconds_total{{{_HOSTS}}}{_WINDOW}))"
             for each in (name, "represented"))  # fmt: skip
    return " / ".join(parts)


def _query(expr: str, legend: str = "") -> Query:
    return prometheus.Dataquery().datasource(_SOURCE).expr(expr).legend_format(legend)


def _lines(
    title: str, unit: str, queries: list[tuple[str, str]], about: str = "", *, stacked: bool = False
) -> timeseries.Panel:
    """Return a plot over time, whose legend begins with what is highest now."""
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE).placement(LegendPlacement.RIGHT)
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(_SOURCE)
        .unit(unit)
        .height(_PANEL_HEIGHT)
        .span(_WIDTH // 2)
        .fill_opacity(30 if stacked else 5)
        .legend(legend.calcs(["lastNotNull", "max"]).sort_by("Last *").sort_desc(sort_desc=True))
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).min(0)
    for letter, (expr, name) in zip("ABCD", queries, strict=False):
        panel = panel.with_target(_query(expr, name).ref_id(letter).range())
    return panel


def _number(title: str, expr: str, unit: str, steps: tuple[tuple[float, str], ...]) -> stat.Panel:
    """Return a figure that changes its colour at limits."""
    limits = [Threshold(value=None, color="green"), *(Threshold(value=value, color=colour) for value, colour in steps)]
    return (
        stat.Panel()
        .title(title)
        .datasource(_SOURCE)
        .unit(unit)
        .height(_STAT_HEIGHT)
        .span(_WIDTH // 6)
        .no_value("no data")
        .color_mode(BigValueColorMode.BACKGROUND)
        .graph_mode(BigValueGraphMode.AREA)
        .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(limits))
        .with_target(_query(expr).ref_id("A").range())
    )


def _rows(title: str, expr: str, value: str, about: str = "") -> table.Panel:
    """Return a table of the labels of a query's result, the largest value first."""
    return (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(_SOURCE)
        .height(_PANEL_HEIGHT)
        .span(_WIDTH // 2)
        .sort_by([common.TableSortByFieldState().display_name(value).desc(desc=True)])
        .with_target(_query(expr).ref_id("A").instant().format(PromQueryFormat.TABLE))
        .with_transformation(
            DataTransformerConfig(
                id_val="organize", options={"excludeByName": {"Time": True}, "renameByName": {"Value": value}}
            )
        )
    )


def _heat(title: str, name: str, selected: str) -> heatmap.Panel:
    """Return how many were in each bucket of histograms, over time."""
    native = f"sum(increase({name}{{{selected}}}{_WINDOW}))"
    classic = f"sum by (le) (increase({name}_bucket{{{selected}}}{_WINDOW}))"
    return (
        heatmap.Panel()
        .title(title)
        .datasource(_SOURCE)
        .height(_PANEL_HEIGHT)
        .span(_WIDTH // 2)
        .calculate(calculate=False)
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .with_target(_query(f"{native} or {classic}", "{{le}}").ref_id("A").range().format(PromQueryFormat.HEATMAP))
    )


if __name__ == "__main__":
    sys.stdout.write(make() + "\n")

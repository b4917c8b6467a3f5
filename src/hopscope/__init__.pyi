# SPDX-License-Identifier: Apache-2.0
from hopscope.api.fleet import fleet_report as fleet_report
from hopscope.api.recording import Host as Host
from hopscope.api.recording import Recording as Recording
from hopscope.api.recording import open as open  # noqa: A004 # it opens recordings
from hopscope.api.relation import Relation as Relation
from hopscope.api.snapshots import Live as Live
from hopscope.api.snapshots import live as live
from hopscope.api.subscription import Subscription as Subscription
from hopscope.api.subscription import subscribe as subscribe
from hopscope.errors import HopscopeError as HopscopeError
from hopscope.model.counters.rows import CounterSnapshot as CounterSnapshot
from hopscope.model.cpu import CpuSnapshot as CpuSnapshot
from hopscope.model.drops import DropSnapshot as DropSnapshot
from hopscope.model.histogram import Histogram as Histogram
from hopscope.model.message import Message as Message
from hopscope.model.message import ReceivedMessage as ReceivedMessage
from hopscope.model.message import SentMessage as SentMessage
from hopscope.model.report import Column as Column
from hopscope.model.report import Report as Report
from hopscope.model.snapshot import HopRow as HopRow
from hopscope.model.snapshot import Snapshot as Snapshot
from hopscope.verbs.sockets.report import SocketReport as SocketReport

__version__: str

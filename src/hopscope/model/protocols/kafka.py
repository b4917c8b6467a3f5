# SPDX-License-Identifier: Apache-2.0
"""Kafka's protocol: a length, the number of an API and of its version, and a number that the answer has as well.

https://kafka.apache.org/protocol.html
"""

from __future__ import annotations

import re
from typing import Final

from hopscope.model.protocols.turn import MORE, Named, Turn, number

NAME: Final = "kafka"
_APIS: Final = (
    "Produce", "Fetch", "ListOffsets", "Metadata", "LeaderAndIsr", "StopReplica", "UpdateMetadata",
    "ControlledShutdown", "OffsetCommit", "OffsetFetch", "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup",
    "SyncGroup", "DescribeGroups", "ListGroups", "SaslHandshake", "ApiVersions", "CreateTopics", "DeleteTopics",
    "DeleteRecords", "InitProducerId", "OffsetForLeaderEpoch", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn",
    "WriteTxnMarkers", "TxnOffsetCommit", "DescribeAcls", "CreateAcls", "DeleteAcls", "DescribeConfigs",
    "AlterConfigs", "AlterReplicaLogDirs", "DescribeLogDirs", "SaslAuthenticate", "CreatePartitions",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
    "DeleteGroups", "ElectLeaders", "IncrementalAlterConfigs", "AlterPartitionReassignments",
    "ListPartitionReassignments", "OffsetDelete", "DescribeClientQuotas", "AlterClientQuotas",
    "DescribeUserScramCredentials", "AlterUserScramCredentials", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch",
    "DescribeQuorum", "AlterPartition", "UpdateFeatures", "Envelope", "FetchSnapshot", "DescribeCluster",
    "DescribeProducers", "BrokerRegistration", "BrokerHeartbeat", "UnregisterBroker", "DescribeTransactions",
    "ListTransactions", "AllocateProducerIds", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe",
    "ControllerRegistration", "GetTelemetrySubscriptions", "PushTelemetry", "AssignReplicasToDirs",
    "ListConfigResources", "DescribeTopicPartitions", "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch",
    "ShareAcknowledge", "AddRaftVoter", "RemoveRaftVoter", "UpdateRaftVoter", "InitializeShareGroupState",
    "ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat", "StreamsGroupDescribe", "DescribeShareGroupOffsets", "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
)  # fmt: skip
_MOST_VERSION: Final = 20
# Size, API, version, correlation id, and the length of the client's name.
_HEAD_BYTES: Final = 14
_NO_NAME: Final = 0xFFFF
_CLIENT: Final = re.compile(rb"[\x20-\x7e]*")
# APIs whose answers begin with the code of an error, in every version.
_ERROR_FIRST: Final = frozenset({"ApiVersions", "SaslHandshake"})
_OK: Final = "NONE"


def kafka(request: Turn, answer: Turn) -> Named | None:
    """Return the request if it is one of Kafka: the name of its API."""
    data = request.data
    if len(data) < _HEAD_BYTES or len(answer.data) < 8:
        return None
    size, api, version = (number(data, at, length) or 0 for at, length in ((0, 4), (4, 2), (6, 2)))
    if api >= len(_APIS) or version > _MOST_VERSION or size < _HEAD_BYTES - 4 or not _has_client(data):
        return None
    # Each has the length that it says, unless others follow it.
    more = request.len_bytes is not None and request.len_bytes > size + 4
    answer_size = number(answer.data, 0, 4) or 0
    if request.len_bytes is None or answer.len_bytes is None or request.len_bytes < size + 4:
        return None
    if (not more and answer.len_bytes != answer_size + 4) or answer.len_bytes < answer_size + 4:
        return None
    if data[8:12] != answer.data[4:8]:
        return None
    name = _APIS[api]
    return Named(NAME, name + (MORE if more else ""), _status(answer.data) if name in _ERROR_FIRST else None)


def _has_client(data: bytes) -> bool:
    length = number(data, 12, 2)
    name = data[_HEAD_BYTES : _HEAD_BYTES + (length or 0)]
    return length == _NO_NAME or (length is not None and length < 1 << 15 and bool(_CLIENT.fullmatch(name)))


def _status(data: bytes) -> str | None:
    code = number(data, 8, 2)
    return None if code is None else str(code) if code else _OK

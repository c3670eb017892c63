"""Messages of the quorum and of administration, and the bytes that Kafka 4.4's own classes make of them.

``tests/interop/judges/test_messages.py`` has Kafka make them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyreplog.wire import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_ID,
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    BeginQuorumEpochPartition,
    BeginQuorumEpochPartitionResult,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    BeginQuorumEpochTopic,
    BeginQuorumEpochTopicResult,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CurrentLeader,
    DescribeQuorumNode,
    DescribeQuorumPartition,
    DescribeQuorumPartitionResult,
    DescribeQuorumReplica,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopic,
    DescribeQuorumTopicResult,
    EndQuorumEpochPartition,
    EndQuorumEpochPartitionResult,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EndQuorumEpochTopic,
    EndQuorumEpochTopicResult,
    EpochEndOffset,
    ErrorCode,
    Feature,
    FeatureUpdate,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchSnapshotPartition,
    FetchSnapshotPartitionResult,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    FetchSnapshotTopic,
    FetchSnapshotTopicResult,
    FetchTopic,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    KRaftVersionFeature,
    LeaderIdAndEpoch,
    Listener,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionData,
    PreferredCandidate,
    QuorumEndpoint,
    QuorumNodeEndpoint,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ReplicaState,
    SnapshotId,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VotePartition,
    VotePartitionResult,
    VoteRequest,
    VoteResponse,
    VoteTopic,
    VoteTopicResult,
)

CLUSTER: Final = "M29uc29sZS1jbHVzdGVyMQ"
ONE: Final = "b25lb25lb25lb25lb25lMQ"
TWO: Final = "dHdvdHdvdHdvdHdvdHdvMg"
LISTENER: Final = QuorumEndpoint("CONTROLLER", "controller-2", 65_535)
ADDRESS: Final = QuorumNodeEndpoint(2, "controller-2", 9093)

MESSAGES: Final[tuple[Any, ...]] = (
    VoteRequest([VoteTopic(METADATA_TOPIC, [VotePartition(0, 7, 2, 6, 1234, TWO, ONE, True)])], CLUSTER, 1),
    VoteRequest([VoteTopic(METADATA_TOPIC, [VotePartition(0, 2**31 - 1, 2, 6, 2**63 - 1)])]),
    VoteResponse([VoteTopicResult(METADATA_TOPIC, [VotePartitionResult(0, 0, -1, 7, True)])]),
    VoteResponse(
        [VoteTopicResult(METADATA_TOPIC, [VotePartitionResult(0, ErrorCode.FENCED_LEADER_EPOCH, 2, 8)])],
        node_endpoints=[ADDRESS],
    ),
    VoteResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID),
    BeginQuorumEpochRequest(
        [BeginQuorumEpochTopic(METADATA_TOPIC, [BeginQuorumEpochPartition(0, 2, 8, ONE)])], CLUSTER, 1, [LISTENER]
    ),
    BeginQuorumEpochResponse(
        [BeginQuorumEpochTopicResult(METADATA_TOPIC, [BeginQuorumEpochPartitionResult(0, 0, 2, 8)])],
        node_endpoints=[ADDRESS],
    ),
    EndQuorumEpochRequest(
        [
            EndQuorumEpochTopic(
                METADATA_TOPIC,
                [EndQuorumEpochPartition(0, 2, 8, [PreferredCandidate(1, ONE), PreferredCandidate(3, NO_ID)])],
            )
        ],
        CLUSTER,
        [LISTENER],
    ),
    EndQuorumEpochResponse(
        [
            EndQuorumEpochTopicResult(
                METADATA_TOPIC, [EndQuorumEpochPartitionResult(0, ErrorCode.FENCED_LEADER_EPOCH, 3, 9)]
            )
        ],
    ),
    FetchSnapshotRequest(
        [FetchSnapshotTopic(METADATA_TOPIC, [FetchSnapshotPartition(0, 8, SnapshotId(1000, 6), 4096, ONE)])],
        CLUSTER,
        1,
        1 << 20,
    ),
    FetchSnapshotRequest([FetchSnapshotTopic(METADATA_TOPIC, [FetchSnapshotPartition(0, 8, SnapshotId(0, 0), 0)])]),
    FetchSnapshotResponse(
        [
            FetchSnapshotTopicResult(
                METADATA_TOPIC,
                [
                    FetchSnapshotPartitionResult(
                        0, SnapshotId(1000, 6), 0, 9000, 4096, b"a piece of a file", LeaderIdAndEpoch(2, 8)
                    )
                ],
            )
        ],
        node_endpoints=[ADDRESS],
    ),
    FetchSnapshotResponse(
        [
            FetchSnapshotTopicResult(
                METADATA_TOPIC,
                [FetchSnapshotPartitionResult(0, SnapshotId(1000, 6), ErrorCode.POSITION_OUT_OF_RANGE)],
            )
        ]
    ),
    FetchRequest(
        500,
        1,
        [FetchTopic(METADATA_TOPIC_ID, [FetchPartition(0, 8, 1234, 6, 0, 8192, ONE, 1200)])],
        ReplicaState(1),
        cluster_id=CLUSTER,
    ),
    FetchResponse(
        [
            FetchableTopicResponse(
                METADATA_TOPIC_ID,
                [
                    PartitionData(
                        0,
                        0,
                        1200,
                        1200,
                        0,
                        diverging_epoch=EpochEndOffset(5, 1100),
                        current_leader=LeaderIdAndEpoch(2, 8),
                        snapshot_id=SnapshotId(1000, 6),
                        records=b"",
                    )
                ],
            )
        ]
    ),
    DescribeQuorumRequest([DescribeQuorumTopic(METADATA_TOPIC, [DescribeQuorumPartition(0)])]),
    DescribeQuorumResponse(
        [
            DescribeQuorumTopicResult(
                METADATA_TOPIC,
                [
                    DescribeQuorumPartitionResult(
                        0,
                        0,
                        None,
                        2,
                        8,
                        1234,
                        [DescribeQuorumReplica(2, 1240, TWO, 1000, 1000), DescribeQuorumReplica(1, 1234, ONE, 990)],
                        [DescribeQuorumReplica(4, 0)],
                    )
                ],
            )
        ],
        nodes=[DescribeQuorumNode(2, [LISTENER])],
    ),
    DescribeQuorumResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message="1 of 3 voters is up"),
    AddRaftVoterRequest(3, TWO, [LISTENER], CLUSTER, 30_000, False),
    AddRaftVoterResponse(ErrorCode.DUPLICATE_VOTER, "node 3 is a voter"),
    RemoveRaftVoterRequest(3, TWO),
    RemoveRaftVoterResponse(ErrorCode.VOTER_NOT_FOUND),
    UpdateRaftVoterRequest(8, 2, TWO, [LISTENER], KRaftVersionFeature(0, 1), CLUSTER),
    UpdateRaftVoterResponse(0, CurrentLeader(2, 8, "controller-2", 9093)),
    UpdateRaftVoterResponse(ErrorCode.INVALID_UPDATE_VERSION),
    CreatePartitionsRequest(
        [CreatePartitionsTopic("t", 6), CreatePartitionsTopic("u", 2, [CreatePartitionsAssignment([1, 2])])],
        30_000,
        True,
    ),
    CreatePartitionsResponse([CreatePartitionsTopicResult("t", ErrorCode.INVALID_PARTITIONS, "t has 6")]),
    AlterPartitionReassignmentsRequest(
        [
            ReassignableTopic("t", [ReassignablePartition(0, [4, 1]), ReassignablePartition(1)]),
            ReassignableTopic("u", []),
        ],
        30_000,
        False,
    ),
    AlterPartitionReassignmentsResponse(
        [
            ReassignableTopicResponse(
                "t",
                [
                    ReassignablePartitionResponse(0),
                    ReassignablePartitionResponse(1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "t-1: none goes on"),
                ],
            )
        ],
        allow_replication_factor_change=False,
    ),
    AlterPartitionReassignmentsResponse((), ErrorCode.NOT_CONTROLLER, "1 of 3 voters is up"),
    ListPartitionReassignmentsRequest([ListPartitionReassignmentsTopics("t", [0, 2])], 30_000),
    ListPartitionReassignmentsRequest(),
    ListPartitionReassignmentsResponse(
        [OngoingTopicReassignment("t", [OngoingPartitionReassignment(2, [4, 1, 2, 3], [4], [2, 3])])]
    ),
    ListPartitionReassignmentsResponse((), ErrorCode.NOT_CONTROLLER, "1 of 3 voters is up"),
    IncrementalAlterConfigsRequest(
        [
            AlterConfigsResource(2, "t", [AlterableConfig("a", 0, "1"), AlterableConfig("b", 1, None)]),
            AlterConfigsResource(4, "", []),
        ]
    ),
    IncrementalAlterConfigsResponse([AlterConfigsResourceResponse(2, "t", ErrorCode.INVALID_CONFIG, "no such")]),
    UpdateFeaturesRequest([FeatureUpdate("metadata.version", 27), FeatureUpdate("ours", 0, 2)], 30_000, True),
    UpdateFeaturesResponse(ErrorCode.FEATURE_UPDATE_FAILED, "node 2 knows level 0 only"),
    ControllerRegistrationRequest(
        2, ONE, [Listener("CONTROLLER", "controller-2", 9093)], [Feature("kraft.version", 0, 1)], False
    ),
    ControllerRegistrationResponse(),
    UnregisterBrokerRequest(3),
    UnregisterBrokerResponse(ErrorCode.BROKER_ID_NOT_REGISTERED, "no broker 3"),
)
"""Messages with every field of the layouts set at least once, and with most of them left at their defaults."""
GOLDEN: Final = Path(__file__).with_name("golden_messages.txt")
"""The bytes of each of them at the version that we use, one line each, in hexadecimal."""

"""The layout of every message in bytes: its fields in order, with their types and tags. Facts of
Kafka's message schemas, newest version.

One line per struct, ``name:type`` per field:

* ``int8 int16 uint16 int32 int64 bool uuid string records`` or the name of a struct;
* ``?type``: may be null; ``[type]``: an array; ``{name:type}``: a struct of that one field, which
  our value holds without the struct;
* ``name:type@7``: a tagged field, which is left out if it has its default. Tags from 10000 are ours
  (:data:`LOCAL_TAGS`).

A test compares every line with ``kio``. The lines of metadata records are in
:mod:`pyreplog.wire.metadata_layouts`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyreplog.wire import admin_schemas, peer_schemas, quorum_schemas, reassignment_schemas, schemas

__all__ = ["APIS", "CLASSES", "LAYOUTS", "Api"]


class Api(NamedTuple):
    """One kind of request with its answer, at the version that we use."""

    key: int
    version: int
    request: type
    response: type


APIS: Final = (
    Api(0, 13, schemas.ProduceRequest, schemas.ProduceResponse),
    Api(1, 18, schemas.FetchRequest, schemas.FetchResponse),
    Api(2, 10, schemas.ListOffsetsRequest, schemas.ListOffsetsResponse),
    Api(3, 13, admin_schemas.MetadataRequest, admin_schemas.MetadataResponse),
    Api(19, 7, admin_schemas.CreateTopicsRequest, admin_schemas.CreateTopicsResponse),
    Api(20, 6, admin_schemas.DeleteTopicsRequest, admin_schemas.DeleteTopicsResponse),
    Api(21, 2, schemas.DeleteRecordsRequest, schemas.DeleteRecordsResponse),
    Api(22, 6, schemas.InitProducerIdRequest, schemas.InitProducerIdResponse),
    Api(23, 4, schemas.OffsetForLeaderEpochRequest, schemas.OffsetForLeaderEpochResponse),
    Api(32, 4, admin_schemas.DescribeConfigsRequest, admin_schemas.DescribeConfigsResponse),
    Api(37, 3, admin_schemas.CreatePartitionsRequest, admin_schemas.CreatePartitionsResponse),
    Api(43, 2, admin_schemas.ElectLeadersRequest, admin_schemas.ElectLeadersResponse),
    Api(44, 1, admin_schemas.IncrementalAlterConfigsRequest, admin_schemas.IncrementalAlterConfigsResponse),
    Api(
        45,
        1,
        reassignment_schemas.AlterPartitionReassignmentsRequest,
        reassignment_schemas.AlterPartitionReassignmentsResponse,
    ),
    Api(
        46,
        0,
        reassignment_schemas.ListPartitionReassignmentsRequest,
        reassignment_schemas.ListPartitionReassignmentsResponse,
    ),
    Api(52, 2, quorum_schemas.VoteRequest, quorum_schemas.VoteResponse),
    Api(53, 1, quorum_schemas.BeginQuorumEpochRequest, quorum_schemas.BeginQuorumEpochResponse),
    Api(54, 1, quorum_schemas.EndQuorumEpochRequest, quorum_schemas.EndQuorumEpochResponse),
    Api(55, 2, quorum_schemas.DescribeQuorumRequest, quorum_schemas.DescribeQuorumResponse),
    Api(56, 3, peer_schemas.AlterPartitionRequest, peer_schemas.AlterPartitionResponse),
    Api(57, 2, admin_schemas.UpdateFeaturesRequest, admin_schemas.UpdateFeaturesResponse),
    Api(59, 1, quorum_schemas.FetchSnapshotRequest, quorum_schemas.FetchSnapshotResponse),
    Api(60, 2, admin_schemas.DescribeClusterRequest, admin_schemas.DescribeClusterResponse),
    Api(62, 4, peer_schemas.BrokerRegistrationRequest, peer_schemas.BrokerRegistrationResponse),
    Api(63, 1, peer_schemas.BrokerHeartbeatRequest, peer_schemas.BrokerHeartbeatResponse),
    Api(64, 0, peer_schemas.UnregisterBrokerRequest, peer_schemas.UnregisterBrokerResponse),
    Api(70, 0, peer_schemas.ControllerRegistrationRequest, peer_schemas.ControllerRegistrationResponse),
    Api(75, 0, admin_schemas.DescribeTopicPartitionsRequest, admin_schemas.DescribeTopicPartitionsResponse),
    Api(80, 1, quorum_schemas.AddRaftVoterRequest, quorum_schemas.AddRaftVoterResponse),
    Api(81, 0, quorum_schemas.RemoveRaftVoterRequest, quorum_schemas.RemoveRaftVoterResponse),
    Api(82, 0, quorum_schemas.UpdateRaftVoterRequest, quorum_schemas.UpdateRaftVoterResponse),
)

LAYOUTS: Final = {
    # Produce
    "ProduceRequest": "transactional_id:?string acks:int16 timeout_ms:int32 topic_data:[TopicProduceData]",
    "TopicProduceData": "topic_id:uuid partition_data:[PartitionProduceData]",
    "PartitionProduceData": "index:int32 records:?records",
    "ProduceResponse": "responses:[TopicProduceResponse] throttle_time_ms:int32 node_endpoints:[NodeEndpoint]@0",
    "TopicProduceResponse": "topic_id:uuid partition_responses:[PartitionProduceResponse]",
    "PartitionProduceResponse": (
        "index:int32 error_code:int16 base_offset:int64 log_append_time_ms:int64 log_start_offset:int64 "
        "record_errors:[BatchIndexAndErrorMessage] error_message:?string current_leader:LeaderIdAndEpoch@0"
    ),
    "BatchIndexAndErrorMessage": "batch_index:int32 batch_index_error_message:?string",
    "LeaderIdAndEpoch": "leader_id:int32 leader_epoch:int32",
    "NodeEndpoint": "node_id:int32 host:string port:int32 rack:?string",
    # Fetch
    "FetchRequest": (
        "cluster_id:?string@0 replica_state:ReplicaState@1 max_wait_ms:int32 min_bytes:int32 max_bytes:int32"
        " isolation_level:int8 session_id:int32 session_epoch:int32 topics:[FetchTopic]"
        " forgotten_topics_data:[ForgottenTopic] rack_id:string"
    ),
    "ReplicaState": "replica_id:int32 replica_epoch:int64",
    "FetchTopic": "topic_id:uuid partitions:[FetchPartition]",
    "FetchPartition": (
        "partition:int32 current_leader_epoch:int32 fetch_offset:int64 last_fetched_epoch:int32 log_start_offset:int64 "
        "partition_max_bytes:int32 replica_directory_id:uuid@0 high_watermark:int64@1 "
        "flushed_offset:int64@10062"
    ),
    "ForgottenTopic": "topic_id:uuid partitions:[int32]",
    "FetchResponse": (
        "throttle_time_ms:int32 error_code:int16 session_id:int32 responses:[FetchableTopicResponse] "
        "node_endpoints:[NodeEndpoint]@0"
    ),
    "FetchableTopicResponse": "topic_id:uuid partitions:[PartitionData]",
    "PartitionData": (
        "partition_index:int32 error_code:int16 high_watermark:int64 last_stable_offset:int64 log_start_offset:int64 "
        "diverging_epoch:EpochEndOffset@0 current_leader:LeaderIdAndEpoch@1 snapshot_id:SnapshotId@2 "
        "aborted_transactions:?[AbortedTransaction] preferred_read_replica:int32 records:?records "
        "tombstone_bound:int64@10060 dropped_tombstone:int64@10061"
    ),
    "EpochEndOffset": "epoch:int32 end_offset:int64",
    "SnapshotId": "end_offset:int64 epoch:int32",
    "AbortedTransaction": "producer_id:int64 first_offset:int64",
    # ListOffsets
    "ListOffsetsRequest": "replica_id:int32 isolation_level:int8 topics:[ListOffsetsTopic] timeout_ms:int32",
    "ListOffsetsTopic": "name:string partitions:[ListOffsetsPartition]",
    "ListOffsetsPartition": "partition_index:int32 current_leader_epoch:int32 timestamp:int64",
    "ListOffsetsResponse": "throttle_time_ms:int32 topics:[ListOffsetsTopicResponse]",
    "ListOffsetsTopicResponse": "name:string partitions:[ListOffsetsPartitionResponse]",
    "ListOffsetsPartitionResponse": (
        "partition_index:int32 error_code:int16 timestamp:int64 offset:int64 leader_epoch:int32"
    ),
    # Metadata
    "MetadataRequest": (
        "topics:?[MetadataRequestTopic] allow_auto_topic_creation:bool include_topic_authorized_operations:bool"
    ),
    "MetadataRequestTopic": "topic_id:uuid name:?string",
    "MetadataResponse": (
        "throttle_time_ms:int32 brokers:[MetadataResponseBroker] cluster_id:?string controller_id:int32 "
        "topics:[MetadataResponseTopic] error_code:int16"
    ),
    "MetadataResponseBroker": "node_id:int32 host:string port:int32 rack:?string",
    "MetadataResponseTopic": (
        "error_code:int16 name:?string topic_id:uuid is_internal:bool partitions:[MetadataResponsePartition] "
        "topic_authorized_operations:int32"
    ),
    "MetadataResponsePartition": (
        "error_code:int16 partition_index:int32 leader_id:int32 leader_epoch:int32 replica_nodes:[int32] "
        "isr_nodes:[int32] offline_replicas:[int32]"
    ),
    # CreateTopics, DeleteTopics
    "CreateTopicsRequest": "topics:[CreatableTopic] timeout_ms:int32 validate_only:bool",
    "CreatableTopic": (
        "name:string num_partitions:int32 replication_factor:int16 assignments:[CreatableReplicaAssignment] "
        "configs:[CreatableTopicConfig] placement:?string@10030"
    ),
    "CreatableReplicaAssignment": "partition_index:int32 broker_ids:[int32]",
    "CreatableTopicConfig": "name:string value:?string",
    "CreateTopicsResponse": "throttle_time_ms:int32 topics:[CreatableTopicResult]",
    "CreatableTopicResult": (
        "name:string topic_id:uuid error_code:int16 error_message:?string topic_config_error_code:int16@0 "
        "num_partitions:int32 replication_factor:int16 configs:?[CreatableTopicConfigs]"
    ),
    "CreatableTopicConfigs": "name:string value:?string read_only:bool config_source:int8 is_sensitive:bool",
    "DeleteTopicsRequest": "topics:[DeleteTopicState] timeout_ms:int32",
    "DeleteTopicState": "name:?string topic_id:uuid",
    "DeleteTopicsResponse": "throttle_time_ms:int32 responses:[DeletableTopicResult]",
    "DeletableTopicResult": "name:?string topic_id:uuid error_code:int16 error_message:?string",
    # DeleteRecords
    "DeleteRecordsRequest": "topics:[DeleteRecordsTopic] timeout_ms:int32",
    "DeleteRecordsTopic": "name:string partitions:[DeleteRecordsPartition]",
    "DeleteRecordsPartition": "partition_index:int32 offset:int64",
    "DeleteRecordsResponse": "throttle_time_ms:int32 topics:[DeleteRecordsTopicResult]",
    "DeleteRecordsTopicResult": "name:string partitions:[DeleteRecordsPartitionResult]",
    "DeleteRecordsPartitionResult": "partition_index:int32 low_watermark:int64 error_code:int16",
    # InitProducerId
    "InitProducerIdRequest": (
        "transactional_id:?string transaction_timeout_ms:int32 producer_id:int64 producer_epoch:int16 enable2_pc:bool "
        "keep_prepared_txn:bool"
    ),
    "InitProducerIdResponse": (
        "throttle_time_ms:int32 error_code:int16 producer_id:int64 producer_epoch:int16 "
        "ongoing_txn_producer_id:int64 ongoing_txn_producer_epoch:int16"
    ),
    # OffsetForLeaderEpoch
    "OffsetForLeaderEpochRequest": "replica_id:int32 topics:[OffsetForLeaderTopic]",
    "OffsetForLeaderTopic": "topic:string partitions:[OffsetForLeaderPartition]",
    "OffsetForLeaderPartition": "partition:int32 current_leader_epoch:int32 leader_epoch:int32",
    "OffsetForLeaderEpochResponse": "throttle_time_ms:int32 topics:[OffsetForLeaderTopicResult]",
    "OffsetForLeaderTopicResult": "topic:string partitions:[OffsetForLeaderEpochResult]",
    "OffsetForLeaderEpochResult": "error_code:int16 partition:int32 leader_epoch:int32 end_offset:int64",
    # DescribeConfigs
    "DescribeConfigsRequest": "resources:[DescribeConfigsResource] include_synonyms:bool include_documentation:bool",
    "DescribeConfigsResource": "resource_type:int8 resource_name:string configuration_keys:?[string]",
    "DescribeConfigsResponse": "throttle_time_ms:int32 results:[DescribeConfigsResult]",
    "DescribeConfigsResult": (
        "error_code:int16 error_message:?string resource_type:int8 resource_name:string "
        "configs:[DescribeConfigsResourceResult]"
    ),
    "DescribeConfigsResourceResult": (
        "name:string value:?string read_only:bool config_source:int8 is_sensitive:bool "
        "synonyms:[DescribeConfigsSynonym] config_type:int8 documentation:?string"
    ),
    "DescribeConfigsSynonym": "name:string value:?string source:int8",
    # CreatePartitions
    "CreatePartitionsRequest": "topics:[CreatePartitionsTopic] timeout_ms:int32 validate_only:bool",
    "CreatePartitionsTopic": (
        "name:string count:int32 assignments:?[CreatePartitionsAssignment] placement:?string@10031"
    ),
    "CreatePartitionsAssignment": "broker_ids:[int32]",
    "CreatePartitionsResponse": "throttle_time_ms:int32 results:[CreatePartitionsTopicResult]",
    "CreatePartitionsTopicResult": "name:string error_code:int16 error_message:?string",
    # AlterPartitionReassignments
    "AlterPartitionReassignmentsRequest": (
        "timeout_ms:int32 allow_replication_factor_change:bool topics:[ReassignableTopic]"
    ),
    "ReassignableTopic": "name:string partitions:[ReassignablePartition]",
    "ReassignablePartition": "partition_index:int32 replicas:?[int32]",
    "AlterPartitionReassignmentsResponse": (
        "throttle_time_ms:int32 allow_replication_factor_change:bool error_code:int16 error_message:?string "
        "responses:[ReassignableTopicResponse]"
    ),
    "ReassignableTopicResponse": "name:string partitions:[ReassignablePartitionResponse]",
    "ReassignablePartitionResponse": "partition_index:int32 error_code:int16 error_message:?string",
    # ListPartitionReassignments
    "ListPartitionReassignmentsRequest": "timeout_ms:int32 topics:?[ListPartitionReassignmentsTopics]",
    "ListPartitionReassignmentsTopics": "name:string partition_indexes:[int32]",
    "ListPartitionReassignmentsResponse": (
        "throttle_time_ms:int32 error_code:int16 error_message:?string topics:[OngoingTopicReassignment]"
    ),
    "OngoingTopicReassignment": "name:string partitions:[OngoingPartitionReassignment]",
    "OngoingPartitionReassignment": (
        "partition_index:int32 replicas:[int32] adding_replicas:[int32] removing_replicas:[int32]"
    ),
    # IncrementalAlterConfigs
    "IncrementalAlterConfigsRequest": "resources:[AlterConfigsResource] validate_only:bool",
    "AlterConfigsResource": "resource_type:int8 resource_name:string configs:[AlterableConfig]",
    "AlterableConfig": "name:string config_operation:int8 value:?string",
    "IncrementalAlterConfigsResponse": "throttle_time_ms:int32 responses:[AlterConfigsResourceResponse]",
    "AlterConfigsResourceResponse": ("error_code:int16 error_message:?string resource_type:int8 resource_name:string"),
    # ElectLeaders
    "ElectLeadersRequest": (
        "election_type:int8 topic_partitions:?[ElectLeadersTopic] timeout_ms:int32 dry_run:bool@10063"
    ),
    "ElectLeadersTopic": "topic:string partitions:[int32]",
    "ElectLeadersResponse": "throttle_time_ms:int32 error_code:int16 replica_election_results:[ElectLeadersResult]",
    "ElectLeadersResult": "topic:string partition_result:[ElectLeadersPartitionResult]",
    "ElectLeadersPartitionResult": (
        "partition_id:int32 error_code:int16 error_message:?string leader_id:int32@10057 leader_epoch:int32@10058"
        " lost:[LostOffsets]@10059"
    ),
    "LostOffsets": "start:int64 end:int64 certain:bool",
    # AlterPartition
    "AlterPartitionRequest": "broker_id:int32 broker_epoch:int64 topics:[AlterPartitionTopic]",
    "AlterPartitionTopic": "topic_id:uuid partitions:[AlterPartitionData]",
    "AlterPartitionData": (
        "partition_index:int32 leader_epoch:int32 new_isr_with_epochs:[BrokerState] leader_recovery_state:int8 "
        "partition_epoch:int32"
    ),
    "BrokerState": "broker_id:int32 broker_epoch:int64",
    "AlterPartitionResponse": "throttle_time_ms:int32 error_code:int16 topics:[AlterPartitionTopicResult]",
    "AlterPartitionTopicResult": "topic_id:uuid partitions:[AlterPartitionResult]",
    "AlterPartitionResult": (
        "partition_index:int32 error_code:int16 leader_id:int32 leader_epoch:int32 isr:[int32] "
        "leader_recovery_state:int8 partition_epoch:int32"
    ),
    # DescribeCluster
    "DescribeClusterRequest": (
        "include_cluster_authorized_operations:bool endpoint_type:int8 include_fenced_brokers:bool"
    ),
    "DescribeClusterResponse": (
        "throttle_time_ms:int32 error_code:int16 error_message:?string endpoint_type:int8 cluster_id:string "
        "controller_id:int32 brokers:[DescribeClusterBroker] cluster_authorized_operations:int32 "
        "metadata_offset:int64@10012"
    ),
    "DescribeClusterBroker": (
        "broker_id:int32 host:string port:int32 rack:?string is_fenced:bool state:int8@10010 cordoned:bool@10032"
    ),
    # BrokerRegistration, BrokerHeartbeat, UnregisterBroker
    "BrokerRegistrationRequest": (
        "broker_id:int32 cluster_id:string incarnation_id:uuid listeners:[Listener] features:[Feature] rack:?string"
        " is_migrating_zk_broker:bool log_dirs:[uuid] previous_broker_epoch:int64 partition_ends:[PartitionEnd]@10000"
    ),
    "Listener": "name:string host:string port:uint16 security_protocol:int16",
    "Feature": "name:string min_supported_version:int16 max_supported_version:int16",
    "PartitionEnd": (
        "topic_id:uuid partition:int32 last_epoch:int32 end_offset:int64 incomplete:bool reported:bool status:int8"
    ),
    "BrokerRegistrationResponse": "throttle_time_ms:int32 error_code:int16 broker_epoch:int64",
    "BrokerHeartbeatRequest": (
        "broker_id:int32 broker_epoch:int64 current_metadata_offset:int64 want_fence:bool want_shut_down:bool "
        "offline_log_dirs:[uuid]@0 partition_ends:[PartitionEnd]@10001 replica_lags:[ReplicaLag]@10050"
    ),
    "ReplicaLag": (
        "topic_id:uuid partition:int32 leader_epoch:int32 replica_id:int32 reason:int8 lag:int64 since_ms:int64"
        " estimate_ms:int64"
    ),
    "BrokerHeartbeatResponse": (
        "throttle_time_ms:int32 error_code:int16 is_caught_up:bool is_fenced:bool should_shut_down:bool"
        " controller_epoch:int32@10056"
    ),
    "UnregisterBrokerRequest": "broker_id:int32",
    "UnregisterBrokerResponse": "throttle_time_ms:int32 error_code:int16 error_message:?string",
    # ControllerRegistration
    "ControllerRegistrationRequest": (
        "controller_id:int32 incarnation_id:uuid zk_migration_ready:bool listeners:[Listener] features:[Feature]"
    ),
    "ControllerRegistrationResponse": "throttle_time_ms:int32 error_code:int16 error_message:?string",
    # UpdateFeatures
    "UpdateFeaturesRequest": "timeout_ms:int32 feature_updates:[FeatureUpdate] validate_only:bool",
    "FeatureUpdate": "feature:string max_version_level:int16 upgrade_type:int8",
    "UpdateFeaturesResponse": "throttle_time_ms:int32 error_code:int16 error_message:?string",
    # DescribeTopicPartitions
    "DescribeTopicPartitionsRequest": (
        "topics:[{name:string}] response_partition_limit:int32 cursor:?Cursor state:int8@10051"
    ),
    "Cursor": "topic_name:string partition_index:int32",
    "DescribeTopicPartitionsResponse": (
        "throttle_time_ms:int32 topics:[DescribeTopicPartitionsTopic] next_cursor:?Cursor metadata_offset:int64@10011"
        " controller_epoch:int32@10054"
    ),
    "DescribeTopicPartitionsTopic": (
        "error_code:int16 name:?string topic_id:uuid is_internal:bool "
        "partitions:[DescribeTopicPartitionsPartition] topic_authorized_operations:int32"
    ),
    "DescribeTopicPartitionsPartition": (
        "error_code:int16 partition_index:int32 leader_id:int32 leader_epoch:int32 replica_nodes:[int32] "
        "isr_nodes:[int32] eligible_leader_replicas:?[int32] last_known_elr:?[int32] offline_replicas:[int32]"
        " partition_epoch:int32@10052 out_of_sync:[OutOfSyncReplica]@10053 min_isr:int32@10055"
        " adding:[int32]@10064 removing:[int32]@10065"
    ),
    "OutOfSyncReplica": "replica_id:int32 reason:int8 lag:int64 since_ms:int64 estimate_ms:int64",
    # The metadata quorum: Vote, BeginQuorumEpoch, EndQuorumEpoch
    "VoteRequest": "cluster_id:?string voter_id:int32 topics:[VoteTopic]",
    "VoteTopic": "topic_name:string partitions:[VotePartition]",
    "VotePartition": (
        "partition_index:int32 replica_epoch:int32 replica_id:int32 replica_directory_id:uuid voter_directory_id:uuid "
        "last_offset_epoch:int32 last_offset:int64 pre_vote:bool"
    ),
    "VoteResponse": "error_code:int16 topics:[VoteTopicResult] node_endpoints:[QuorumNodeEndpoint]@0",
    "VoteTopicResult": "topic_name:string partitions:[VotePartitionResult]",
    "VotePartitionResult": (
        "partition_index:int32 error_code:int16 leader_id:int32 leader_epoch:int32 vote_granted:bool"
    ),
    "QuorumNodeEndpoint": "node_id:int32 host:string port:uint16",
    "QuorumEndpoint": "name:string host:string port:uint16",
    "BeginQuorumEpochRequest": (
        "cluster_id:?string voter_id:int32 topics:[BeginQuorumEpochTopic] leader_endpoints:[QuorumEndpoint]"
    ),
    "BeginQuorumEpochTopic": "topic_name:string partitions:[BeginQuorumEpochPartition]",
    "BeginQuorumEpochPartition": ("partition_index:int32 voter_directory_id:uuid leader_id:int32 leader_epoch:int32"),
    "BeginQuorumEpochResponse": (
        "error_code:int16 topics:[BeginQuorumEpochTopicResult] node_endpoints:[QuorumNodeEndpoint]@0"
    ),
    "BeginQuorumEpochTopicResult": "topic_name:string partitions:[BeginQuorumEpochPartitionResult]",
    "BeginQuorumEpochPartitionResult": ("partition_index:int32 error_code:int16 leader_id:int32 leader_epoch:int32"),
    "EndQuorumEpochRequest": ("cluster_id:?string topics:[EndQuorumEpochTopic] leader_endpoints:[QuorumEndpoint]"),
    "EndQuorumEpochTopic": "topic_name:string partitions:[EndQuorumEpochPartition]",
    "EndQuorumEpochPartition": (
        "partition_index:int32 leader_id:int32 leader_epoch:int32 preferred_candidates:[PreferredCandidate]"
    ),
    "PreferredCandidate": "candidate_id:int32 candidate_directory_id:uuid",
    "EndQuorumEpochResponse": (
        "error_code:int16 topics:[EndQuorumEpochTopicResult] node_endpoints:[QuorumNodeEndpoint]@0"
    ),
    "EndQuorumEpochTopicResult": "topic_name:string partitions:[EndQuorumEpochPartitionResult]",
    "EndQuorumEpochPartitionResult": ("partition_index:int32 error_code:int16 leader_id:int32 leader_epoch:int32"),
    # FetchSnapshot
    "FetchSnapshotRequest": ("cluster_id:?string@0 replica_id:int32 max_bytes:int32 topics:[FetchSnapshotTopic]"),
    "FetchSnapshotTopic": "name:string partitions:[FetchSnapshotPartition]",
    "FetchSnapshotPartition": (
        "partition:int32 current_leader_epoch:int32 snapshot_id:SnapshotId position:int64 replica_directory_id:uuid@0"
    ),
    "FetchSnapshotResponse": (
        "throttle_time_ms:int32 error_code:int16 topics:[FetchSnapshotTopicResult] "
        "node_endpoints:[QuorumNodeEndpoint]@0"
    ),
    "FetchSnapshotTopicResult": "name:string partitions:[FetchSnapshotPartitionResult]",
    "FetchSnapshotPartitionResult": (
        "index:int32 error_code:int16 snapshot_id:SnapshotId current_leader:LeaderIdAndEpoch@0 size:int64 "
        "position:int64 unaligned_records:records"
    ),
    # DescribeQuorum
    "DescribeQuorumRequest": "topics:[DescribeQuorumTopic]",
    "DescribeQuorumTopic": "topic_name:string partitions:[DescribeQuorumPartition]",
    "DescribeQuorumPartition": "partition_index:int32",
    "DescribeQuorumResponse": (
        "error_code:int16 error_message:?string topics:[DescribeQuorumTopicResult] nodes:[DescribeQuorumNode]"
    ),
    "DescribeQuorumTopicResult": "topic_name:string partitions:[DescribeQuorumPartitionResult]",
    "DescribeQuorumPartitionResult": (
        "partition_index:int32 error_code:int16 error_message:?string leader_id:int32 leader_epoch:int32 "
        "high_watermark:int64 current_voters:[DescribeQuorumReplica] observers:[DescribeQuorumReplica]"
    ),
    "DescribeQuorumReplica": (
        "replica_id:int32 replica_directory_id:uuid log_end_offset:int64 last_fetch_timestamp:int64 "
        "last_caught_up_timestamp:int64"
    ),
    "DescribeQuorumNode": "node_id:int32 listeners:[QuorumEndpoint]",
    # AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter
    "AddRaftVoterRequest": (
        "cluster_id:?string timeout_ms:int32 voter_id:int32 voter_directory_id:uuid listeners:[QuorumEndpoint] "
        "ack_when_committed:bool"
    ),
    "AddRaftVoterResponse": "throttle_time_ms:int32 error_code:int16 error_message:?string",
    "RemoveRaftVoterRequest": "cluster_id:?string voter_id:int32 voter_directory_id:uuid",
    "RemoveRaftVoterResponse": "throttle_time_ms:int32 error_code:int16 error_message:?string",
    "UpdateRaftVoterRequest": (
        "cluster_id:?string current_leader_epoch:int32 voter_id:int32 voter_directory_id:uuid "
        "listeners:[QuorumEndpoint] kraft_version_feature:KRaftVersionFeature"
    ),
    "KRaftVersionFeature": "min_supported_version:int16 max_supported_version:int16",
    "UpdateRaftVoterResponse": "throttle_time_ms:int32 error_code:int16 current_leader:CurrentLeader@0",
    "CurrentLeader": "leader_id:int32 leader_epoch:int32 host:string port:int32",
}
"""Name of the class -> its fields in bytes."""

CLASSES: Final[dict[str, type]] = {
    name: next(
        found
        for module in (schemas, admin_schemas, peer_schemas, quorum_schemas, reassignment_schemas)
        if (found := getattr(module, name, None)) is not None
    )
    for name in LAYOUTS
}
"""Every class that has a layout, by name."""

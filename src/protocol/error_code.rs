//! Error codes as the wire carries them: Kafka 4.4's, and cluster mirroring's own. Owns the
//! numbers, whether a client may retry, and a short text; which failure gets which code is
//! decided by the area that failed.
//!
//! Kafka 4.4 uses 134 to 136 for other things than cluster mirroring does, so the two are two
//! enums: [`MirrorErrorCode`] appears only in answers of API keys 94 to 105.

/// Declares an enum of codes with number, retriability, text.
macro_rules! error_codes {
    ($(#[$doc:meta])* $name:ident {
        $($variant:ident = $code:literal, $retry:ident, $text:literal;)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $(#[doc = $text] $variant,)*
        }

        impl $name {
            /// All of them, by number.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The number on the wire.
            pub const fn code(self) -> i16 {
                match self { $($name::$variant => $code,)* }
            }

            /// The code with this number, if there is one.
            pub const fn known(code: i16) -> Option<$name> {
                match code { $($code => Some($name::$variant),)* _ => None }
            }

            /// Whether the same request may succeed later.
            pub const fn is_retriable(self) -> bool {
                match self { $($name::$variant => error_codes!(@ $retry),)* }
            }

            /// What it means, in a few words.
            pub const fn message(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.message())
            }
        }
    };
    (@ retry) => { true };
    (@ fail) => { false };
}

error_codes! {
/// An error code of Kafka 4.4.
ErrorCode {
    UnknownServerError = -1, fail, "something unexpected went wrong on the server";
    None = 0, fail, "no error";
    OffsetOutOfRange = 1, fail, "the offset is outside the partition's log";
    CorruptMessage = 2, retry,
        "a record batch is damaged, too large, or lacks a key that compaction needs";
    UnknownTopicOrPartition = 3, retry, "no such topic or partition here";
    InvalidFetchSize = 4, fail, "the fetch size is not valid";
    LeaderNotAvailable = 5, retry, "the partition has no leader at the moment";
    NotLeaderOrFollower = 6, retry,
        "this broker is not the partition's leader, or holds no replica of it";
    RequestTimedOut = 7, retry, "the request ran into its timeout";
    BrokerNotAvailable = 8, fail, "the broker is not available";
    ReplicaNotAvailable = 9, retry, "the replica is not available";
    MessageTooLarge = 10, fail, "the message is larger than the server takes";
    StaleControllerEpoch = 11, fail, "the controller epoch is behind";
    OffsetMetadataTooLarge = 12, fail, "the offset's metadata string is too large";
    NetworkException = 13, retry, "the connection ended before the response";
    CoordinatorLoadInProgress = 14, retry, "the coordinator is still loading its state";
    CoordinatorNotAvailable = 15, retry, "the coordinator is not available";
    NotCoordinator = 16, retry, "this broker is not the coordinator";
    InvalidTopicException = 17, fail,
        "the topic's name is not valid, or the topic may not be used this way";
    RecordListTooLarge = 18, fail, "the record set is larger than a segment may be";
    NotEnoughReplicas = 19, retry, "fewer replicas are in sync than the topic requires";
    NotEnoughReplicasAfterAppend = 20, retry,
        "the records were written, but to fewer replicas than required";
    InvalidRequiredAcks = 21, fail, "acks must be 0, 1 or -1";
    IllegalGeneration = 22, fail, "the group is in another generation";
    InconsistentGroupProtocol = 23, fail, "the member's protocols do not fit the group's";
    InvalidGroupId = 24, fail, "the group id is not valid";
    UnknownMemberId = 25, fail, "the coordinator does not know this member";
    InvalidSessionTimeout = 26, fail, "the session timeout is outside the allowed range";
    RebalanceInProgress = 27, fail, "the group is rebalancing; join again";
    InvalidCommitOffsetSize = 28, fail, "the size of the committed offset data is not valid";
    TopicAuthorizationFailed = 29, fail, "not authorized for the topic";
    GroupAuthorizationFailed = 30, fail, "not authorized for the group";
    ClusterAuthorizationFailed = 31, fail, "not authorized for the cluster";
    InvalidTimestamp = 32, fail, "the timestamp is out of range";
    UnsupportedSaslMechanism = 33, fail, "the SASL mechanism is not supported";
    IllegalSaslState = 34, fail, "the request does not fit the state of the SASL exchange";
    UnsupportedVersion = 35, fail, "the version of this API is not supported";
    TopicAlreadyExists = 36, fail, "a topic of this name exists already";
    InvalidPartitions = 37, fail, "the partition count is not valid";
    InvalidReplicationFactor = 38, fail,
        "the replication factor is not valid for the brokers there are";
    InvalidReplicaAssignment = 39, fail, "the replica assignment is not valid";
    InvalidConfig = 40, fail, "a configuration entry is not valid";
    NotController = 41, retry, "this node is not the active controller";
    InvalidRequest = 42, fail, "the request is not valid";
    UnsupportedForMessageFormat = 43, fail, "the log's message format does not allow this";
    PolicyViolation = 44, fail, "a policy forbids this";
    OutOfOrderSequenceNumber = 45, fail, "the sequence number is out of order";
    DuplicateSequenceNumber = 46, fail, "the sequence number was used before";
    InvalidProducerEpoch = 47, fail, "the producer epoch is behind";
    InvalidTxnState = 48, fail, "the transaction is in a state that does not allow this";
    InvalidProducerIdMapping = 49, fail,
        "the producer id does not belong to the transactional id";
    InvalidTransactionTimeout = 50, fail, "the transaction timeout is above the allowed maximum";
    ConcurrentTransactions = 51, retry, "another operation on the transaction is under way";
    TransactionCoordinatorFenced = 52, fail, "another transaction coordinator has taken over";
    TransactionalIdAuthorizationFailed = 53, fail, "not authorized for the transactional id";
    SecurityDisabled = 54, fail, "security is not enabled";
    OperationNotAttempted = 55, fail,
        "the operation was not attempted, since another of the batch failed";
    KafkaStorageError = 56, retry, "a log file could not be read or written";
    LogDirNotFound = 57, fail, "no such log directory";
    SaslAuthenticationFailed = 58, fail, "SASL authentication failed";
    UnknownProducerId = 59, fail, "the producer id is not known to the partition";
    ReassignmentInProgress = 60, fail, "a reassignment of the partition is under way";
    DelegationTokenAuthDisabled = 61, fail, "delegation tokens are not enabled";
    DelegationTokenNotFound = 62, fail, "no such delegation token";
    DelegationTokenOwnerMismatch = 63, fail, "the principal neither owns nor may renew the token";
    DelegationTokenRequestNotAllowed = 64, fail,
        "delegation tokens are not allowed on this connection";
    DelegationTokenAuthorizationFailed = 65, fail, "not authorized for the delegation token";
    DelegationTokenExpired = 66, fail, "the delegation token has expired";
    InvalidPrincipalType = 67, fail, "the principal type is not supported";
    NonEmptyGroup = 68, fail, "the group has members";
    GroupIdNotFound = 69, fail, "no such group";
    FetchSessionIdNotFound = 70, retry, "no such fetch session";
    InvalidFetchSessionEpoch = 71, retry, "the fetch session is in another epoch";
    ListenerNotFound = 72, retry, "the leader has no listener of this name";
    TopicDeletionDisabled = 73, fail, "topic deletion is turned off";
    FencedLeaderEpoch = 74, retry, "the leader epoch is older than the broker's";
    UnknownLeaderEpoch = 75, retry, "the leader epoch is newer than the broker's";
    UnsupportedCompressionType = 76, fail,
        "the client does not support the partition's compression";
    StaleBrokerEpoch = 77, fail, "the broker epoch is behind";
    OffsetNotAvailable = 78, retry, "the new leader does not know its high watermark yet";
    MemberIdRequired = 79, fail, "join again with the member id given";
    PreferredLeaderNotAvailable = 80, retry, "the preferred leader is not available";
    GroupMaxSizeReached = 81, fail, "the group is full";
    FencedInstanceId = 82, fail, "another member uses the same group instance id";
    EligibleLeadersNotAvailable = 83, retry, "no replica may become leader";
    ElectionNotNeeded = 84, retry, "the partition needs no election";
    NoReassignmentInProgress = 85, fail, "no reassignment is under way";
    GroupSubscribedToTopic = 86, fail, "the group is subscribed to the topic";
    InvalidRecord = 87, fail, "a record failed the broker's checks";
    UnstableOffsetCommit = 88, retry, "offsets of an open transaction are not settled yet";
    ThrottlingQuotaExceeded = 89, retry, "the quota is used up";
    ProducerFenced = 90, fail, "a newer producer uses the same transactional id";
    ResourceNotFound = 91, fail, "no such resource";
    DuplicateResource = 92, fail, "a resource is named twice";
    UnacceptableCredential = 93, fail, "the credential is not acceptable";
    InconsistentVoterSet = 94, fail, "the voter set does not hold this node";
    InvalidUpdateVersion = 95, fail, "the update version is not valid";
    FeatureUpdateFailed = 96, fail, "the features could not be updated";
    PrincipalDeserializationFailure = 97, fail, "the forwarded principal could not be read";
    SnapshotNotFound = 98, fail, "no such snapshot";
    PositionOutOfRange = 99, fail, "the position is outside the snapshot";
    UnknownTopicId = 100, retry, "no topic with this id here";
    DuplicateBrokerRegistration = 101, fail, "another live broker has this id";
    BrokerIdNotRegistered = 102, fail, "no broker is registered with this id";
    InconsistentTopicId = 103, retry, "the topic id differs from the log's";
    InconsistentClusterId = 104, fail, "the cluster id differs from the server's";
    TransactionalIdNotFound = 105, fail, "no such transactional id";
    FetchSessionTopicIdError = 106, retry, "the fetch session mixes topic names and topic ids";
    IneligibleReplica = 107, fail, "a replica may not join the in-sync set";
    NewLeaderElected = 108, fail, "the change was made and another leader was elected";
    OffsetMovedToTieredStorage = 109, fail, "the offset is in tiered storage";
    FencedMemberEpoch = 110, fail,
        "the member epoch is fenced; give up all partitions and join again";
    UnreleasedInstanceId = 111, fail, "the group instance id is still in use";
    UnsupportedAssignor = 112, fail, "the assignor is not supported";
    StaleMemberEpoch = 113, fail, "the member epoch is behind; retry after the next heartbeat";
    MismatchedEndpointType = 114, fail, "this kind of endpoint does not take the request";
    UnsupportedEndpointType = 115, fail, "the endpoint type is not supported";
    UnknownControllerId = 116, fail, "no such controller";
    UnknownSubscriptionId = 117, fail, "no such telemetry subscription";
    TelemetryTooLarge = 118, fail, "the telemetry data is too large";
    InvalidRegistration = 119, fail, "the registration is not valid";
    TransactionAbortable = 120, fail, "the transaction failed and can be aborted";
    InvalidRecordState = 121, fail, "the record is not in a state that can be acknowledged";
    ShareSessionNotFound = 122, retry, "no such share session";
    InvalidShareSessionEpoch = 123, retry, "the share session is in another epoch";
    FencedStateEpoch = 124, fail, "the state epoch is behind";
    InvalidVoterKey = 125, fail, "the voter's directory id differs";
    DuplicateVoter = 126, fail, "the voter is in the set already";
    VoterNotFound = 127, fail, "the voter is not in the set";
    InvalidRegularExpression = 128, fail, "the regular expression is not valid";
    RebootstrapRequired = 129, fail,
        "the client's metadata is too old; start from the bootstrap servers again";
    StreamsInvalidTopology = 130, fail, "the topology is not valid";
    StreamsInvalidTopologyEpoch = 131, fail, "the topology epoch is not valid";
    StreamsTopologyFenced = 132, fail, "the topology epoch is behind";
    ShareSessionLimitReached = 133, retry, "there are as many share sessions as allowed";
    GroupDeletionFailed = 134, fail, "a group could not be deleted; its own result says why";
    StreamsTopologyDescriptionUpdateFailed = 135, fail, "the topology description was not stored";
    ControllerIdNotRegistered = 136, fail, "no controller is registered with this id";
}
}

impl ErrorCode {
    /// The code with this number; one that is not known reads as `UnknownServerError`, as it
    /// does for Kafka's clients.
    pub const fn from_code(code: i16) -> ErrorCode {
        match ErrorCode::known(code) {
            Some(known) => known,
            None => ErrorCode::UnknownServerError,
        }
    }

    /// Whether it reports success.
    pub const fn is_none(self) -> bool {
        matches!(self, ErrorCode::None)
    }
}

error_codes! {
/// A code of cluster mirroring (KIP-1279), used only in answers of API keys 94 to 105.
MirrorErrorCode {
    ReadOnlyTopic = 134, fail, "a mirrored partition takes no writes of clients";
    InvalidMirrorName = 135, fail, "the mirror's name is not valid";
    MirrorAlreadyExists = 136, fail, "a mirror of this name exists already";
    UnknownMirror = 137, fail, "no such mirror";
    TopicAlreadyInMirror = 138, fail, "the topic is in a mirror already";
    TopicNotInMirror = 139, fail, "the topic is not in this mirror";
    MirrorTopicAlreadyPaused = 140, fail, "the topic is paused already";
    MirrorTopicNotPaused = 141, fail, "the topic is not paused";
    MirrorTopicBeingStopped = 142, fail, "the topic is being stopped";
    MirrorNotEmpty = 143, fail, "the mirror still has topics that are not stopped";
    MirrorAuthorizationFailed = 144, fail, "not authorized for the mirror";
    InvalidMirrorStates = 145, fail, "a partition is in a state that does not allow this";
}
}

impl MirrorErrorCode {
    /// The code with this number, if it is one of cluster mirroring's.
    pub const fn from_code(code: i16) -> Option<MirrorErrorCode> {
        MirrorErrorCode::known(code)
    }
}

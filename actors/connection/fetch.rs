//! Fetch: reads partitions' views and, while there is too little, parks. No mailbox is involved
//! but for telling a leader how far its follower is.

use std::sync::Arc;
use std::time::Duration;

use log::{ReadMode, ReadUpTo, ReadView, Role};
use mirror::epochs::mirrored_lookup;
use protocol::error_code::ErrorCode;
use protocol::ids::{
    BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicIdPartition,
};
use protocol::messages::fetch_request::FetchPartition;
use protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData,
};
use protocol::messages::{FetchRequest, FetchResponse};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::context::RequestContext;
use super::fetch_sessions::{SessionPartition, SessionRef, Told, Wanted};
use super::listener_view::ListenerView;
use crate::admission::ResponseLoan;
use crate::partition::{PartitionHandle, waiters::ParkedFetch};

/// The version from which topics are named by id.
const TOPIC_IDS_FROM: i16 = 13;

/// The version from which an answer has a place for a partition's leader.
const LEADERS_FROM: i16 = 12;

/// The version from which an answer names the brokers that lead elsewhere.
const ENDPOINTS_FROM: i16 = 16;

/// Who fetches and how much.
struct Reading {
    up_to: ReadUpTo,
    replica: Option<(NodeId, BrokerEpoch)>,
    committed_only: bool,
    bytes_max: usize,
}

/// What was read of one partition.
struct Read {
    id: TopicIdPartition,
    data: PartitionData,
    records_len: usize,
    /// An error or a divergence: worth an answer at once.
    urgent: bool,
}

/// Answers a Fetch request; waits up to its `MaxWaitMs` for `MinBytes`.
pub async fn fetch(context: RequestContext, request: FetchRequest) -> FetchResponse {
    let replica = replica_of(&context, &request);
    let deadline = Instant::now() + wait_of(&request);
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
    let reading = Reading {
        up_to: match (replica, request.isolation_level) {
            (Some(_), _) => ReadUpTo::LogEnd,
            (None, 1) => ReadUpTo::LastStable,
            (None, _) => ReadUpTo::HighWatermark,
        },
        committed_only: replica.is_none() && request.isolation_level == 1,
        replica,
        bytes_max: bytes_max(&context, &request),
    };
    let (session, incremental, partitions) = match open(&context, request, replica.map(|r| r.0)) {
        Ok(opened) => opened,
        Err(code) => {
            return FetchResponse { error_code: code.code(), ..FetchResponse::default() };
        }
    };
    let mut reads = read_all(&context, &reading, &partitions).await;
    let notify = Arc::new(Notify::new());
    while !is_enough(&reads, min_bytes) && Instant::now() < deadline {
        // Parked first, read again then: nothing that moves in between is missed.
        let parked = park_all(&context, &reading, &partitions, &notify);
        reads = read_all(&context, &reading, &partitions).await;
        if is_enough(&reads, min_bytes) {
            break;
        }
        let moved = tokio::select! {
            biased;
            // A replica that asks again has given this wait up: its next fetch stands behind it.
            () = context.followed.cancelled(), if replica.is_some() => false,
            moved = tokio::time::timeout_at(deadline, notify.notified()) => moved.is_ok(),
        };
        if !moved {
            break;
        }
        drop(parked);
    }
    respond(&context, session, incremental, &partitions, reads)
}

fn replica_of(context: &RequestContext, request: &FetchRequest) -> Option<(NodeId, BrokerEpoch)> {
    let (id, epoch) = if request.replica_state.replica_id >= 0 {
        (request.replica_state.replica_id, request.replica_state.replica_epoch)
    } else {
        (request.replica_id, -1)
    };
    (id >= 0 && context.is_broker()).then_some((NodeId(id), BrokerEpoch(epoch)))
}

fn wait_of(request: &FetchRequest) -> Duration {
    Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0))
}

fn bytes_max(context: &RequestContext, request: &FetchRequest) -> usize {
    let asked = usize::try_from(request.max_bytes).unwrap_or(0);
    asked.min(context.directory.config.network.fetch_max_bytes)
}

type Opened = (Option<SessionRef>, bool, Vec<SessionPartition>);

/// Finds what is asked for: all of a full request, or a session with its changes.
fn open(
    context: &RequestContext,
    request: FetchRequest,
    replica: Option<NodeId>,
) -> Result<Opened, ErrorCode> {
    let sessions = &context.directory.fetch_sessions;
    let now = context.directory.clock.now();
    let (id, epoch) = (request.session_id, request.session_epoch);
    let forgotten = forgotten(context, &request);
    let changes = partitions_of(context, request);
    if epoch <= 0 {
        // 0 opens a session in place of the one named, −1 closes it and opens none.
        sessions.close(id);
        let session = if epoch == 0 && !changes.is_empty() {
            sessions.open(|| context.directory.entropy.next_u64(), replica, now)
        } else {
            None
        };
        if let Some(session) = &session {
            let mut content = session.session.lock();
            changes.iter().for_each(|partition| content.set(partition.clone()));
        }
        return Ok((session, false, changes));
    }
    let session = sessions.resume(id, epoch, now)?;
    let partitions = {
        let mut content = session.session.lock();
        forgotten.into_iter().for_each(|id| content.remove(id));
        changes.into_iter().for_each(|partition| content.set(partition));
        content.partitions()
    };
    Ok((Some(session), true, partitions))
}

fn topic_id(context: &RequestContext, name: &str, id: TopicId) -> TopicId {
    if context.version >= TOPIC_IDS_FROM {
        return id;
    }
    context.directory.image().topics.id_of(name).unwrap_or(TopicId::ZERO)
}

fn partitions_of(context: &RequestContext, request: FetchRequest) -> Vec<SessionPartition> {
    let mut partitions = Vec::new();
    for topic in request.topics {
        let topic_id = topic_id(context, &topic.topic, TopicId(topic.topic_id));
        for partition in topic.partitions {
            let id = TopicIdPartition { topic_id, partition: PartitionIndex(partition.partition) };
            partitions.push(SessionPartition {
                id,
                topic: topic.topic.clone(),
                wanted: wanted(&partition),
                told: None,
            });
        }
    }
    partitions
}

fn wanted(partition: &FetchPartition) -> Wanted {
    Wanted {
        offset: Offset(partition.fetch_offset),
        leader_epoch: LeaderEpoch(partition.current_leader_epoch),
        last_fetched_epoch: LeaderEpoch(partition.last_fetched_epoch),
        bytes_max: partition.partition_max_bytes,
    }
}

fn forgotten(context: &RequestContext, request: &FetchRequest) -> Vec<TopicIdPartition> {
    let mut forgotten = Vec::new();
    for topic in &request.forgotten_topics_data {
        let topic_id = topic_id(context, &topic.topic, TopicId(topic.topic_id));
        for partition in &topic.partitions {
            let partition = PartitionIndex(*partition);
            forgotten.push(TopicIdPartition { topic_id, partition });
        }
    }
    forgotten
}

fn is_enough(reads: &[Read], min_bytes: usize) -> bool {
    let bytes: usize = reads.iter().map(|read| read.records_len).sum();
    bytes >= min_bytes || reads.iter().any(|read| read.urgent) || reads.is_empty()
}

fn park_all(
    context: &RequestContext,
    reading: &Reading,
    partitions: &[SessionPartition],
    notify: &Arc<Notify>,
) -> Vec<ParkedFetch> {
    partitions
        .iter()
        .filter_map(|partition| {
            let handle = context.directory.partition(partition.id)?;
            let waiters = &handle.shared().waiters;
            Some(waiters.park(reading.up_to, partition.wanted.offset, Arc::clone(notify)))
        })
        .collect()
}

async fn read_all(
    context: &RequestContext,
    reading: &Reading,
    partitions: &[SessionPartition],
) -> Vec<Read> {
    let mut left = reading.bytes_max;
    let mut first = true;
    let mut reads = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let read = read_partition(context, reading, partition, left, first).await;
        left = left.saturating_sub(read.records_len);
        first &= read.records_len == 0;
        reads.push(read);
    }
    reads
}

async fn read_partition(
    context: &RequestContext,
    reading: &Reading,
    partition: &SessionPartition,
    left: usize,
    first: bool,
) -> Read {
    let (id, wanted) = (partition.id, &partition.wanted);
    let found = leading_view(context, id, wanted.leader_epoch);
    let (handle, view) = match found {
        Ok(found) => found,
        Err(code) => return Read::refused(context, id, code),
    };
    if let Some((epoch, end)) = divergence(&view, wanted) {
        let mut data = bounds(id, &view);
        data.diverging_epoch = EpochEndOffset { epoch: epoch.0, end_offset: end.0 };
        return Read { id, data, records_len: 0, urgent: true };
    }
    if wanted.offset < view.log_start() || wanted.offset > view.log_end() {
        let mut data = bounds(id, &view);
        data.error_code = ErrorCode::OffsetOutOfRange.code();
        return Read { id, data, records_len: 0, urgent: true };
    }
    let limit = usize::try_from(wanted.bytes_max).unwrap_or(0).min(left);
    let serving = view.serving();
    if let Some((replica, broker_epoch)) = reading.replica {
        // The epoch that was compared: in another one, the same offset may stand for other bytes.
        let named = Some(wanted.leader_epoch).filter(|epoch| *epoch >= LeaderEpoch(0));
        let compared = named.unwrap_or(serving.leader_epoch);
        handle.follower_fetched(compared, replica, broker_epoch, wanted.offset);
    }
    let mut data = bounds(id, &view);
    if wanted.offset < view.bound(reading.up_to) && (limit > 0 || first) {
        // What followers ask for is bounded by the number of brokers.
        let loan =
            reading.replica.is_none().then(|| context.directory.response_budget.lend(limit));
        let limit = loan.as_ref().map_or(limit, ResponseLoan::bytes);
        match read_bytes(&view, wanted.offset, limit, reading.up_to, first).await {
            Ok(batches) => {
                data.high_watermark = batches.high_watermark.0;
                data.last_stable_offset = batches.last_stable_offset.0;
                data.log_start_offset = batches.log_start.0;
                if reading.committed_only {
                    let to = batches.next_offset;
                    data.aborted_transactions = Some(aborted(&view, wanted.offset, to));
                }
                data.records = Some(match loan {
                    Some(loan) => loan.settle(batches.bytes),
                    None => batches.bytes,
                });
            }
            Err(error) => return Read::refused(context, id, error.error_code()),
        }
    }
    if view.serving() != serving {
        return Read::refused(context, id, ErrorCode::NotLeaderOrFollower);
    }
    let records_len = data.records.as_ref().map_or(0, bytes::Bytes::len);
    Read { id, data, records_len, urgent: false }
}

/// Reads from the page cache, or on a blocking thread what is not in it.
async fn read_bytes(
    view: &Arc<ReadView>,
    from: Offset,
    limit: usize,
    up_to: ReadUpTo,
    at_least_one: bool,
) -> Result<log::ReadBatches, log::Error> {
    match view.read(from, limit, up_to, at_least_one, ReadMode::CachedOnly) {
        Err(log::Error::WouldBlock) => {}
        read => return read,
    }
    let view = Arc::clone(view);
    let read = move || view.read(from, limit, up_to, at_least_one, ReadMode::MayBlock);
    tokio::task::spawn_blocking(read).await.unwrap_or(Err(log::Error::WouldBlock))
}

/// The log of a partition that this node leads, in the leader epoch the asker knows (−1: any).
///
/// # Errors
/// The code of a partition that is unknown, or led elsewhere or in another epoch.
pub(super) fn leading_view(
    context: &RequestContext,
    id: TopicIdPartition,
    leader_epoch: LeaderEpoch,
) -> Result<(PartitionHandle, Arc<ReadView>), ErrorCode> {
    let image = context.directory.image();
    if image.topics.by_id(id.topic_id).is_none() {
        let by_id = context.version >= TOPIC_IDS_FROM;
        let named = ErrorCode::UnknownTopicOrPartition;
        return Err(if by_id { ErrorCode::UnknownTopicId } else { named });
    }
    if image.topics.partition(id).is_none() {
        return Err(ErrorCode::UnknownTopicOrPartition);
    }
    let handle = context.directory.partition(id).ok_or(ErrorCode::NotLeaderOrFollower)?;
    let view = handle.shared().view().ok_or(ErrorCode::NotLeaderOrFollower)?;
    check_leader(&view, leader_epoch)?;
    Ok((handle, view))
}

/// Whether the view belongs to a leader, in the epoch the asker knows (−1: any).
///
/// # Errors
/// NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
pub fn check_leader(view: &ReadView, leader_epoch: LeaderEpoch) -> Result<(), ErrorCode> {
    let serving = view.serving();
    if serving.role != Role::Leader {
        return Err(ErrorCode::NotLeaderOrFollower);
    }
    if leader_epoch >= LeaderEpoch(0) && leader_epoch < serving.leader_epoch {
        return Err(ErrorCode::FencedLeaderEpoch);
    }
    if leader_epoch > serving.leader_epoch {
        return Err(ErrorCode::UnknownLeaderEpoch);
    }
    Ok(())
}

/// Where the fetcher's log parts from this one (KIP-595), if it does. A mirror partition's newest
/// epoch may lie below its leader's own; asking for one between the two is answered with the
/// newest (D8), and an empty log answers with its start.
fn divergence(view: &ReadView, wanted: &Wanted) -> Option<(LeaderEpoch, Offset)> {
    if wanted.last_fetched_epoch < LeaderEpoch(0) {
        return None;
    }
    let asked = wanted.last_fetched_epoch;
    match end_offset_for_epoch(view, asked) {
        Some((epoch, end)) if epoch < asked || end < wanted.offset => Some((epoch, end)),
        Some(_) => None,
        None => Some((LeaderEpoch::NONE, view.log_start())),
    }
}

/// The largest epoch of the log not above `asked`, and where it ends. Above the log's newest epoch
/// and not above the leader's own, the newest answers (D8).
pub fn end_offset_for_epoch(view: &ReadView, asked: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
    // Read first: if a batch comes in between, the lookup finds its epoch, or it does not matter.
    let (log_end, newest) = (view.log_end(), view.last_epoch());
    let own = view.serving().leader_epoch;
    view.end_offset_for_epoch(asked).or_else(|| {
        mirrored_lookup(asked, own, newest, log_end).map(|end| (end.epoch, end.end_offset))
    })
}

fn bounds(id: TopicIdPartition, view: &ReadView) -> PartitionData {
    PartitionData {
        partition_index: id.partition.0,
        high_watermark: view.high_watermark().0,
        last_stable_offset: view.last_stable_offset().0,
        log_start_offset: view.log_start().0,
        records: Some(bytes::Bytes::new()),
        ..PartitionData::default()
    }
}

fn aborted(view: &ReadView, from: Offset, to: Offset) -> Vec<AbortedTransaction> {
    view.aborted_transactions(from, to)
        .into_iter()
        .map(|aborted| AbortedTransaction {
            producer_id: aborted.producer_id.0,
            first_offset: aborted.first_offset.0,
        })
        .collect()
}

impl Read {
    fn refused(context: &RequestContext, id: TopicIdPartition, code: ErrorCode) -> Read {
        let mut data = PartitionData {
            partition_index: id.partition.0,
            error_code: code.code(),
            high_watermark: -1,
            records: Some(bytes::Bytes::new()),
            ..PartitionData::default()
        };
        if context.version >= LEADERS_FROM
            && matches!(code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch)
            && let Some(partition) = context.directory.image().topics.partition(id)
        {
            data.current_leader = LeaderIdAndEpoch {
                leader_id: partition.leader_id().0,
                leader_epoch: partition.leader_epoch.0,
            };
        }
        Read { id, data, records_len: 0, urgent: true }
    }

    fn told(&self) -> Told {
        Told {
            high_watermark: Offset(self.data.high_watermark),
            log_start: Offset(self.data.log_start_offset),
        }
    }
}

fn respond(
    context: &RequestContext,
    session: Option<SessionRef>,
    incremental: bool,
    partitions: &[SessionPartition],
    reads: Vec<Read>,
) -> FetchResponse {
    let mut response = FetchResponse::default();
    let mut content = session.as_ref().map(|session| session.session.lock());
    for (partition, read) in partitions.iter().zip(reads) {
        let told = read.told();
        let news = read.urgent || read.records_len > 0 || partition.told != Some(told);
        if let Some(content) = &mut content
            && !read.urgent
        {
            content.on_answered(read.id, told, read.records_len > 0);
        }
        if news || !incremental {
            push(&mut response, partition, read.data);
        }
    }
    drop(content);
    response.session_id = session.map_or(0, |session| session.id);
    add_endpoints(context, &mut response);
    response
}

fn push(response: &mut FetchResponse, partition: &SessionPartition, data: PartitionData) {
    let topic_id = partition.id.topic_id.0;
    let same = |topic: &FetchableTopicResponse| {
        topic.topic_id == topic_id && topic.topic == partition.topic
    };
    if !response.responses.last().is_some_and(same) {
        response.responses.push(FetchableTopicResponse {
            topic: partition.topic.clone(),
            topic_id,
            partitions: Vec::new(),
        });
    }
    if let Some(topic) = response.responses.last_mut() {
        topic.partitions.push(data);
    }
}

/// Names the leaders that partitions were found elsewhere at (KIP-951).
fn add_endpoints(context: &RequestContext, response: &mut FetchResponse) {
    if context.version < ENDPOINTS_FROM {
        return;
    }
    let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
    let mut leaders = partitions
        .map(|partition| partition.current_leader.leader_id)
        .filter(|leader| *leader >= 0)
        .peekable();
    if leaders.peek().is_none() {
        return;
    }
    let image = context.directory.image();
    let view = ListenerView::new(&image, &context.listener_name);
    let endpoints = view.endpoints(leaders).map(|(broker, listener)| NodeEndpoint {
        node_id: broker.id.0,
        host: listener.host.clone(),
        port: i32::from(listener.port),
        rack: broker.rack.clone(),
    });
    response.node_endpoints = endpoints.collect();
}

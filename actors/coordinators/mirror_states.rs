//! The states of mirror partitions, wherever they are coordinated: what a partition's leader and
//! the mirroring commands call. Owns the search for coordinators and the retries; the rows are the
//! coordinators'.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mirror::stored::StoredState;
use protocol::api::{Request, Response};
use protocol::error_code::ErrorCode;
use protocol::ids::{NodeId, PartitionIndex, TopicId, TopicIdPartition};
use protocol::messages::read_mirror_states_request::{
    ReadMirrorStatePartition, ReadMirrorStateTopic,
};
use protocol::messages::write_mirror_states_request::WriteMirrorStateTopic;
use protocol::messages::{
    ReadMirrorStatesRequest, ReadMirrorStatesResponse, WriteMirrorStatesRequest,
    WriteMirrorStatesResponse,
};
use raft::MetadataImage;
use tokio::time::Instant;

use super::{ShardId, ShardKind, locate};
use crate::connection::mirror_states as served;
use crate::directory::Directory;
use crate::peers::Plane;

/// First and longest pause before coordinators are asked again.
const RETRY_MIN: Duration = Duration::from_millis(10);
const RETRY_MAX: Duration = Duration::from_millis(250);

/// How long one coordinator may take for one request.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// What was read, by partition; an error is the last one when the deadline came.
pub type ReadStates = BTreeMap<TopicIdPartition, Result<StoredState, ErrorCode>>;

/// What was written, by partition; an error is final, or the last one when the deadline came.
pub type WrittenStates = BTreeMap<TopicIdPartition, Result<(), ErrorCode>>;

/// Reads the states of mirror partitions from their coordinators, asking again where one moves or
/// loads, until all have answered or `deadline` has passed. A partition without a row reads as
/// UNKNOWN.
pub async fn read(
    directory: &Arc<Directory>,
    mirror: &str,
    partitions: impl IntoIterator<Item = TopicIdPartition>,
    deadline: Duration,
) -> ReadStates {
    let reading = Reading { mirror };
    let wanted = partitions.into_iter().map(|at| (at, ())).collect();
    run(directory, mirror, &reading, wanted, deadline).await
}

/// Writes the states of mirror partitions to their coordinators, as [`read`] asks them. A write is
/// acknowledged when it is durable; FENCED_LEADER_EPOCH says that another leader or a later
/// transition has written.
pub async fn write(
    directory: &Arc<Directory>,
    mirror: &str,
    rows: impl IntoIterator<Item = (TopicIdPartition, StoredState)>,
    deadline: Duration,
) -> WrittenStates {
    let writing = Writing { mirror };
    run(directory, mirror, &writing, rows.into_iter().collect(), deadline).await
}

/// Reads the states of all partitions of a mirror's topics.
pub async fn describe(directory: &Arc<Directory>, mirror: &str, deadline: Duration) -> ReadStates {
    let image = directory.image();
    let partitions: Vec<TopicIdPartition> = image
        .mirror_topics(mirror)
        .flat_map(|topic| {
            topic
                .partitions
                .keys()
                .map(|partition| TopicIdPartition { topic_id: topic.id, partition: *partition })
        })
        .collect();
    read(directory, mirror, partitions, deadline).await
}

/// A partition whose answer is open, and what is sent of it.
type Open<R> = (TopicIdPartition, R);

/// The rows of one topic.
struct TopicRows<'a, R> {
    name: String,
    topic_id: TopicId,
    rows: &'a [Open<R>],
}

/// One of the two requests: how it is made and what its answer says.
trait Operation: Sync {
    /// What is sent of a partition.
    type Row: Clone + Send + Sync;
    /// What is answered of a partition.
    type Answer: Send;
    /// The request.
    type Request: Into<Request> + Send;

    /// The request about some partitions.
    fn request(&self, image: &MetadataImage, rows: &[Open<Self::Row>]) -> Self::Request;

    /// Has this node's own coordinators answer.
    fn serve(
        directory: &Arc<Directory>,
        request: Self::Request,
    ) -> impl Future<Output = Response> + Send;

    /// The answers of a response: topic name, partition, and what it says.
    fn answers(response: Response) -> Vec<(String, i32, Result<Self::Answer, ErrorCode>)>;
}

struct Reading<'a> {
    mirror: &'a str,
}

struct Writing<'a> {
    mirror: &'a str,
}

impl Operation for Reading<'_> {
    type Row = ();
    type Answer = StoredState;
    type Request = ReadMirrorStatesRequest;

    fn request(&self, image: &MetadataImage, rows: &[Open<()>]) -> ReadMirrorStatesRequest {
        let topics =
            by_topic(image, rows).into_iter().map(|TopicRows { name, topic_id: _, rows }| {
                let partitions = rows
                    .iter()
                    .map(|(at, ())| ReadMirrorStatePartition { partition_index: at.partition.0 });
                ReadMirrorStateTopic { name, partitions: partitions.collect() }
            });
        ReadMirrorStatesRequest { mirror_name: self.mirror.to_owned(), topics: topics.collect() }
    }

    async fn serve(directory: &Arc<Directory>, request: ReadMirrorStatesRequest) -> Response {
        served::read(directory, request).await.into()
    }

    fn answers(response: Response) -> Vec<(String, i32, Result<StoredState, ErrorCode>)> {
        let Ok(response) = ReadMirrorStatesResponse::try_from(response) else {
            return Vec::new();
        };
        let mut answers = Vec::new();
        for topic in response.topics {
            for row in topic.partitions {
                let code = first_error(response.error_code, row.error_code);
                let answer = code.map_or_else(|| Ok(StoredState::from_read(&row)), Err);
                answers.push((topic.name.clone(), row.partition_index, answer));
            }
        }
        answers
    }
}

impl Operation for Writing<'_> {
    type Row = StoredState;
    type Answer = ();
    type Request = WriteMirrorStatesRequest;

    fn request(
        &self,
        image: &MetadataImage,
        rows: &[Open<StoredState>],
    ) -> WriteMirrorStatesRequest {
        let topics =
            by_topic(image, rows).into_iter().map(|TopicRows { name, topic_id, rows }| {
                let partitions =
                    rows.iter().map(|(at, row)| row.to_write(at.partition.0)).collect();
                WriteMirrorStateTopic { name, topic_id: topic_id.0, partitions }
            });
        WriteMirrorStatesRequest {
            mirror_name: self.mirror.to_owned(),
            topics: topics.collect(),
            stopped_topics: Vec::new(),
        }
    }

    async fn serve(directory: &Arc<Directory>, request: WriteMirrorStatesRequest) -> Response {
        served::write(directory, request).await.into()
    }

    fn answers(response: Response) -> Vec<(String, i32, Result<(), ErrorCode>)> {
        let Ok(response) = WriteMirrorStatesResponse::try_from(response) else {
            return Vec::new();
        };
        let mut answers = Vec::new();
        for topic in response.topics {
            for row in topic.partitions {
                let answer = first_error(response.error_code, row.error_code).map_or(Ok(()), Err);
                answers.push((topic.name.clone(), row.partition_index, answer));
            }
        }
        answers
    }
}

fn first_error(whole: i16, part: i16) -> Option<ErrorCode> {
    let code = if whole == 0 { part } else { whole };
    (code != 0).then(|| ErrorCode::from_code(code))
}

/// Rows of the topics that exist, topic by topic. Rows come sorted by partition id.
fn by_topic<'a, R>(image: &MetadataImage, rows: &'a [Open<R>]) -> Vec<TopicRows<'a, R>> {
    rows.chunk_by(|(left, _), (right, _)| left.topic_id == right.topic_id)
        .filter_map(|rows| {
            let topic_id = rows.first()?.0.topic_id;
            let name = image.topics.name_of(topic_id)?;
            Some(TopicRows { name: name.to_string(), topic_id, rows })
        })
        .collect()
}

/// Asks the coordinators of all rows, again and again, until nothing is open.
async fn run<O: Operation>(
    directory: &Arc<Directory>,
    mirror: &str,
    operation: &O,
    mut open: BTreeMap<TopicIdPartition, O::Row>,
    deadline: Duration,
) -> BTreeMap<TopicIdPartition, Result<O::Answer, ErrorCode>> {
    let end = Instant::now() + deadline;
    let mut done = BTreeMap::new();
    let mut pause = RETRY_MIN;
    loop {
        let image = directory.image();
        let mut last_errors = BTreeMap::new();
        open.retain(|at, _| {
            let exists = image.topics.by_id(at.topic_id).is_some();
            if !exists {
                done.insert(*at, Err(ErrorCode::UnknownTopicId));
            }
            exists
        });
        let coordinated = coordinators_of(&image, mirror, &open, &mut last_errors);
        let left = end.saturating_duration_since(Instant::now()).min(CALL_DEADLINE);
        let asked = coordinated.into_iter().map(|(node, rows)| {
            let request = operation.request(&image, &rows);
            async move { (rows, ask::<O>(directory, node, request, left).await) }
        });
        for (rows, response) in join_all(asked).await {
            let answers = response.map(O::answers).unwrap_or_default();
            sort_out(&image, &rows, answers, &mut done, &mut last_errors);
        }
        open.retain(|at, _| !done.contains_key(at));
        if open.is_empty() {
            return done;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || directory.stopped.is_cancelled() {
            for at in open.into_keys() {
                let code = last_errors.get(&at).copied();
                done.insert(at, Err(code.unwrap_or(ErrorCode::CoordinatorNotAvailable)));
            }
            return done;
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(RETRY_MAX);
    }
}

/// Who coordinates which row. What nobody does is noted as an error.
fn coordinators_of<R: Clone>(
    image: &MetadataImage,
    mirror: &str,
    open: &BTreeMap<TopicIdPartition, R>,
    errors: &mut BTreeMap<TopicIdPartition, ErrorCode>,
) -> BTreeMap<NodeId, Vec<Open<R>>> {
    let mut coordinated: BTreeMap<NodeId, Vec<Open<R>>> = BTreeMap::new();
    for (at, row) in open {
        let leader = locate::mirror_partition(image, mirror, *at).and_then(|partition| {
            locate::leader(image, ShardId { kind: ShardKind::MirrorState, partition })
        });
        match leader {
            Some(node) => coordinated.entry(node).or_default().push((*at, row.clone())),
            None => {
                errors.insert(*at, ErrorCode::CoordinatorNotAvailable);
            }
        }
    }
    coordinated
}

/// Asks one coordinator: this node's own at once, another over its link.
async fn ask<O: Operation>(
    directory: &Arc<Directory>,
    node: NodeId,
    request: O::Request,
    deadline: Duration,
) -> Option<Response> {
    if node == directory.node_id() {
        return tokio::time::timeout(deadline, O::serve(directory, request)).await.ok();
    }
    let link = directory.peers.link(node, Plane::Coordination);
    match link.call(request.into(), deadline).await {
        Ok(response) => Some(response),
        Err(error) => {
            tracing::debug!(%node, %error, "a mirror coordinator did not answer");
            None
        }
    }
}

/// Takes over what is final, and notes what is to be asked again.
fn sort_out<R, A>(
    image: &MetadataImage,
    asked: &[Open<R>],
    answers: Vec<(String, i32, Result<A, ErrorCode>)>,
    done: &mut BTreeMap<TopicIdPartition, Result<A, ErrorCode>>,
    errors: &mut BTreeMap<TopicIdPartition, ErrorCode>,
) {
    let asked: BTreeSet<TopicIdPartition> = asked.iter().map(|(at, _)| *at).collect();
    for (topic, partition, answer) in answers {
        let Some(topic_id) = image.topics.id_of(&topic) else {
            continue;
        };
        let at = TopicIdPartition { topic_id, partition: PartitionIndex(partition) };
        if !asked.contains(&at) {
            continue;
        }
        match answer {
            Err(code) if is_asked_again(code) => {
                errors.insert(at, code);
            }
            final_answer => {
                done.insert(at, final_answer);
            }
        }
    }
}

/// Whether an error goes by itself: the coordinator moves or loads, or its image is behind.
fn is_asked_again(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::RequestTimedOut
            | ErrorCode::NotEnoughReplicas
    )
}

//! One mirror on one node: the client to the source, what is known of the source, and the fetchers
//! of the partitions that are led here. It appends nothing and decides no state: what it learns is
//! told to the partitions, whose machines decide.
//!
//! Questions and surveys are in `mirror/asking.rs`, the assignment of partitions to fetchers in
//! `mirror/fetching.rs`, what is done about news of the source in `mirror/upkeep.rs`.

mod asking;
mod fetching;
mod upkeep;

pub(super) use upkeep::announce_restart;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mirror::epochs::EpochEnd;
use mirror::{MirrorEvent, SourceError, SourceFacts};
use net::Client;
use protocol::ids::{LeaderEpoch, TopicIdPartition, TopicName};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SpawnErr, SupervisionEvent};
use raft::Settings;
use tokio::task::JoinSet;

use self::asking::{Asking, Question};
use self::fetching::Fetching;
use super::handle::{MirrorShared, SourcePartition, TopicListing};
use super::machine::MirrorInput;
use super::mirror_fetcher::{FetcherId, FetcherReport, MirrorFetcherMsg};
use super::source::{self, Failure};
use super::survey::Survey;
use crate::directory::Directory;
use crate::partition::pending::send;

/// How long a question that is no survey may take.
const QUESTION_DEADLINE: Duration = Duration::from_secs(20);

/// How long a look for a moved leader waits, so that those of many partitions share one.
const MOVED_PAUSE: Duration = Duration::from_millis(50);

/// The shortest time between two looks at the source that nobody asked for.
const REFRESH_MIN: Duration = Duration::from_secs(1);

type Reply<T> = RpcReplyPort<Result<T, SourceError>>;

/// What a mirror can be told.
#[derive(Debug)]
pub enum MirrorMsg {
    /// The image changed in something of this mirror.
    ImageChanged,
    /// See [`super::handle::MirrorHandle::ask_source`].
    AskSource {
        /// Which partition.
        partition: SourcePartition,
        /// The answer.
        reply: Reply<SourceFacts>,
    },
    /// See [`super::handle::MirrorHandle::ask_source_epoch_end`].
    AskSourceEpochEnd {
        /// Which partition.
        partition: SourcePartition,
        /// The epoch.
        epoch: LeaderEpoch,
        /// The answer.
        reply: Reply<Option<EpochEnd>>,
    },
    /// See [`super::handle::MirrorHandle::probe`].
    Probe {
        /// The answer.
        reply: Reply<()>,
    },
    /// See [`super::handle::MirrorHandle::start_fetching`].
    StartFetching {
        /// Which partition.
        partition: SourcePartition,
        /// The bound of every batch's epoch.
        leader_epoch: LeaderEpoch,
    },
    /// See [`super::handle::MirrorHandle::stop_fetching`].
    StopFetching {
        /// Which partition.
        partition: TopicIdPartition,
        /// Answered when nothing is under way.
        reply: RpcReplyPort<()>,
    },
    /// See [`super::handle::MirrorHandle::list_topics`].
    ListTopics {
        /// Which topics; all if `None`.
        names: Option<Vec<TopicName>>,
        /// The answer.
        reply: Reply<TopicListing>,
    },
    /// See [`super::handle::MirrorHandle::topic_configs`].
    TopicConfigs {
        /// Which topics.
        topics: Vec<TopicName>,
        /// The answer.
        reply: Reply<BTreeMap<TopicName, Settings>>,
    },
    /// A look at the source is over. One that began under other settings is dropped.
    Surveyed {
        /// Which look.
        number: u64,
        /// What it gave.
        outcome: Result<Survey, Failure>,
    },
    /// Time for the look that was put off.
    SurveyTimeout,
    /// Time for the look that is due without being asked for.
    RefreshTimeout,
    /// A fetcher's start succeeded or failed.
    FetcherStarted(FetcherId, Result<ActorRef<MirrorFetcherMsg>, SpawnErr>),
    /// A fetcher's backoff is over.
    RestartTimeout(FetcherId),
    /// A fetcher met something that is not one partition's own.
    FetcherReported(FetcherReport),
}

/// What a mirror is started with.
#[derive(Debug, Clone)]
pub struct MirrorArgs {
    /// The node.
    pub directory: Arc<Directory>,
    /// What outlives this actor.
    pub shared: Arc<MirrorShared>,
}

/// The actor; everything mutable is in [`MirrorState`].
#[derive(Debug)]
pub struct Mirror;

/// The state of one incarnation of the mirror.
#[derive(Debug)]
pub struct MirrorState {
    directory: Arc<Directory>,
    shared: Arc<MirrorShared>,
    myself: ActorRef<MirrorMsg>,
    /// What the client was made from.
    settings: Settings,
    client: Client,
    asking: Asking,
    fetching: Fetching,
    /// Questions under way.
    tasks: JoinSet<()>,
    /// The source cluster id that the controller was asked to keep.
    recorded: Option<String>,
    /// The partition counts that the controller was asked for.
    grown: BTreeMap<TopicName, i32>,
}

impl Actor for Mirror {
    type Msg = MirrorMsg;
    type State = MirrorState;
    type Arguments = MirrorArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        args: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        let MirrorArgs { directory, shared } = args;
        let image = directory.image();
        let settings = image.configs.mirror(&shared.name).map(|settings| (**settings).clone());
        let client = new_client(&directory, &shared)?;
        let mut state = MirrorState {
            directory,
            shared,
            myself,
            settings: settings.unwrap_or_default(),
            client,
            asking: Asking::default(),
            fetching: Fetching::default(),
            tasks: JoinSet::new(),
            recorded: None,
            grown: BTreeMap::new(),
        };
        state.want_survey();
        state.schedule_refresh();
        Ok(state)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            MirrorMsg::ImageChanged => state.on_image_changed(),
            MirrorMsg::AskSource { partition, reply } => {
                state.ask(Question::Facts { partition, reply });
            }
            MirrorMsg::AskSourceEpochEnd { partition, epoch, reply } => {
                state.ask(Question::EpochEnd { partition, epoch, reply });
            }
            MirrorMsg::Probe { reply } => state.ask(Question::Probe { reply }),
            MirrorMsg::StartFetching { partition, leader_epoch } => {
                state.on_start_fetching(partition, leader_epoch);
            }
            MirrorMsg::StopFetching { partition, reply } => {
                state.on_stop_fetching(partition, reply);
            }
            MirrorMsg::ListTopics { names, reply } => state.on_list_topics(names, reply),
            MirrorMsg::TopicConfigs { topics, reply } => state.on_topic_configs(topics, reply),
            MirrorMsg::Surveyed { number, outcome } => state.on_surveyed(number, outcome),
            MirrorMsg::SurveyTimeout => state.on_survey_timeout(),
            MirrorMsg::RefreshTimeout => state.on_refresh_timeout(),
            MirrorMsg::FetcherStarted(id, started) => state.on_fetcher_started(id, started),
            MirrorMsg::RestartTimeout(id) => state.on_restart_timeout(id),
            MirrorMsg::FetcherReported(report) => state.on_fetcher_reported(report),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        state: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        state.on_supervision(&event);
        Ok(())
    }
}

fn new_client(directory: &Directory, shared: &MirrorShared) -> Result<Client, raft::Error> {
    let config = directory.image().mirror_config(&shared.name)?;
    let client_id = format!("broker-{}-mirror-{}", directory.node_id(), shared.name);
    Ok(source::client(directory, &config, client_id))
}

impl MirrorState {
    /// Runs a question of its own; it ends with this actor.
    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(task);
    }

    fn on_list_topics(&mut self, names: Option<Vec<TopicName>>, reply: Reply<TopicListing>) {
        let plan = source::SurveyPlan { topics: names, mirrors_of: None };
        let client = self.client.clone();
        let shared = Arc::clone(&self.shared);
        let directory = Arc::clone(&self.directory);
        self.spawn(async move {
            let survey = source::survey(client, plan, QUESTION_DEADLINE).await;
            let listing = survey.map_err(|failure| unanswered(&directory, &shared, failure));
            let checked = listing.and_then(|survey| {
                upkeep::check_cluster(&directory, &shared.name, survey.cluster_id.as_deref())?;
                Ok(survey.listing())
            });
            send(reply, checked);
        });
    }

    fn on_topic_configs(
        &mut self,
        topics: Vec<TopicName>,
        reply: Reply<BTreeMap<TopicName, Settings>>,
    ) {
        let client = self.client.clone();
        let shared = Arc::clone(&self.shared);
        let directory = Arc::clone(&self.directory);
        self.spawn(async move {
            let configs = source::topic_configs(client, topics, QUESTION_DEADLINE).await;
            send(reply, configs.map_err(|failure| unanswered(&directory, &shared, failure)));
        });
    }

    /// Tells a partition something that is not its fetcher's.
    fn tell(
        &self,
        id: TopicIdPartition,
        leader_epoch: LeaderEpoch,
        event: impl Into<MirrorEvent>,
    ) {
        if let Some(partition) = self.directory.partition(id) {
            partition.mirror(MirrorInput::Event { leader_epoch, event: event.into() });
        }
    }
}

/// What a failed question means to the one who asked.
fn unanswered(directory: &Directory, shared: &MirrorShared, failure: Failure) -> SourceError {
    match failure {
        Failure::Source(error) => error,
        Failure::Link(why) => {
            tracing::debug!(mirror = %shared.name, why, "the source does not answer");
            let since = shared.unreachable_since().unwrap_or_else(|| directory.clock.now());
            SourceError::Unreachable { since }
        }
    }
}

//! Looks at the source, shared by all who ask meanwhile. Owns when one begins and who gets its
//! answer; what follows from it for fetching partitions is in `upkeep.rs` and `fetching.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mirror::epochs::EpochEnd;
use mirror::retry::Backoff;
use mirror::{SourceError, SourceFacts};
use protocol::ids::{LeaderEpoch, TimestampMs, TopicName};
use raft::MirrorDesired;
use tokio::time::Instant;

use super::{MirrorMsg, MirrorState, QUESTION_DEADLINE, REFRESH_MIN, Reply, unanswered};
use crate::mirrors::handle::SourcePartition;
use crate::mirrors::source::{self, Failure, SurveyPlan};
use crate::mirrors::survey::{Survey, TopicFault};
use crate::partition::pending::send;
use crate::runtimes::AbortOnDrop;

/// How long a look may take.
const SURVEY_DEADLINE: Duration = Duration::from_secs(10);

/// Two looks are this far apart at least, so that what comes together shares one.
const SURVEY_PAUSE: Duration = Duration::from_millis(20);

/// A topic that is missing is looked for again after this long before it counts as deleted.
const MISSING_PAUSE: Duration = Duration::from_secs(1);

/// A question that the next look answers.
#[derive(Debug)]
pub(super) enum Question {
    Facts { partition: SourcePartition, reply: Reply<SourceFacts> },
    EpochEnd { partition: SourcePartition, epoch: LeaderEpoch, reply: Reply<Option<EpochEnd>> },
    Probe { reply: Reply<()> },
}

/// The looks at the source.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The last one that succeeded.
    pub(super) survey: Option<Survey>,
    running: Option<Running>,
    /// Wait for the next one.
    waiting: Vec<Question>,
    /// When the next one begins, if a time is set.
    next_at: Option<Instant>,
    last_began: Option<Instant>,
    number: u64,
    failures: u32,
    /// Topics that were missing, and since when.
    missing: BTreeMap<TopicName, Instant>,
}

#[derive(Debug)]
struct Running {
    questions: Vec<Question>,
    began: TimestampMs,
    _task: AbortOnDrop,
}

impl Question {
    fn partition(&self) -> Option<&SourcePartition> {
        match self {
            Question::Facts { partition, .. } | Question::EpochEnd { partition, .. } => {
                Some(partition)
            }
            Question::Probe { .. } => None,
        }
    }

    fn refuse(self, error: SourceError) {
        match self {
            Question::Facts { reply, .. } => send(reply, Err(error)),
            Question::EpochEnd { reply, .. } => send(reply, Err(error)),
            Question::Probe { reply } => send(reply, Err(error)),
        }
    }
}

impl Asking {
    /// Whether a topic was missing long enough to count as deleted.
    pub(super) fn is_deleted(&self, topic: &TopicName) -> bool {
        self.missing.get(topic).is_some_and(|since| since.elapsed() >= MISSING_PAUSE)
    }

    /// Notes what a look says of a topic.
    fn note(&mut self, topic: &TopicName, missing: bool) {
        if missing {
            self.missing.entry(topic.clone()).or_insert_with(Instant::now);
        } else {
            self.missing.remove(topic);
        }
    }

    /// Forgets everything that another cluster may have said. Open questions wait for the next
    /// look.
    pub(super) fn forget(&mut self) {
        self.survey = None;
        self.missing.clear();
        self.number += 1;
        self.failures = 0;
        self.last_began = None;
        if let Some(running) = self.running.take() {
            self.waiting.extend(running.questions);
        }
    }
}

impl MirrorState {
    pub(super) fn ask(&mut self, question: Question) {
        self.asking.waiting.push(question);
        self.want_survey();
    }

    /// Looks at the source as soon as may be.
    pub(super) fn want_survey(&mut self) {
        let began = self.asking.last_began;
        let at = began.map_or_else(Instant::now, |began| began + SURVEY_PAUSE);
        self.want_survey_at(at);
    }

    /// Looks at the source in a while, unless a look comes before.
    pub(super) fn want_survey_in(&mut self, pause: Duration) {
        let spread = self.directory.entropy.jitter_ms(millis(pause), 20);
        self.want_survey_at(Instant::now() + Duration::from_millis(spread));
    }

    fn want_survey_at(&mut self, at: Instant) {
        if self.asking.next_at.is_some_and(|next| next <= at) {
            return;
        }
        self.asking.next_at = Some(at);
        if self.asking.running.is_some() {
            return;
        }
        let pause = at.saturating_duration_since(Instant::now());
        if pause.is_zero() {
            self.begin_survey();
        } else {
            self.myself.send_after(pause, || MirrorMsg::SurveyTimeout);
        }
    }

    pub(super) fn on_survey_timeout(&mut self) {
        let due = self.asking.next_at.is_some_and(|at| at <= Instant::now());
        if due && self.asking.running.is_none() {
            self.begin_survey();
        }
    }

    pub(super) fn schedule_refresh(&self) {
        let interval = self.directory.config.mirror.metadata_refresh_interval.max(REFRESH_MIN);
        let spread = self.directory.entropy.jitter_ms(millis(interval), 20);
        let pause = Duration::from_millis(spread);
        self.myself.send_after(pause, || MirrorMsg::RefreshTimeout);
    }

    pub(super) fn on_refresh_timeout(&mut self) {
        self.recorded = None;
        self.grown.clear();
        let (image, me) = (self.directory.image(), self.directory.node_id());
        self.shared.offsets.retain(|id| {
            image.topics.partition(id).is_some_and(|partition| partition.leader == Some(me))
        });
        self.want_survey();
        self.schedule_refresh();
    }

    fn begin_survey(&mut self) {
        let questions = std::mem::take(&mut self.asking.waiting);
        let asks_mirrors = questions.iter().any(|q| matches!(q, Question::Facts { .. }));
        let image = self.directory.image();
        let plan = SurveyPlan {
            topics: Some(self.topics_to_look_at(&questions)),
            mirrors_of: image.cluster.id().filter(|_| asks_mirrors).map(str::to_owned),
        };
        self.asking.number += 1;
        self.asking.next_at = None;
        self.asking.last_began = Some(Instant::now());
        let number = self.asking.number;
        let (client, myself) = (self.client.clone(), self.myself.clone());
        let task = self.directory.runtimes.spawn_data(async move {
            let outcome = source::survey(client, plan, SURVEY_DEADLINE).await;
            if myself.cast(MirrorMsg::Surveyed { number, outcome }).is_err() {
                tracing::trace!("the mirror is gone");
            }
        });
        let began = self.directory.clock.now();
        self.asking.running = Some(Running { questions, began, _task: AbortOnDrop::new(task) });
    }

    /// The active topics of which this node leads a partition, and those that are asked for.
    fn topics_to_look_at(&self, questions: &[Question]) -> Vec<TopicName> {
        let (image, me) = (self.directory.image(), self.directory.node_id());
        let active = image.mirror_topics(&self.shared.name).filter(|topic| {
            topic.mirror.as_ref().is_some_and(|held| held.desired == MirrorDesired::Active)
                && topic.partitions.values().any(|partition| partition.leader == Some(me))
        });
        let mut topics: BTreeSet<TopicName> = active.map(|topic| topic.name.clone()).collect();
        topics.extend(questions.iter().filter_map(|q| Some(q.partition()?.topic.clone())));
        topics.extend(self.fetching.topics());
        topics.into_iter().collect()
    }

    pub(super) fn on_surveyed(&mut self, number: u64, outcome: Result<Survey, Failure>) {
        if number != self.asking.number {
            return;
        }
        let Some(Running { questions, began, .. }) = self.asking.running.take() else {
            return;
        };
        match outcome {
            Ok(survey) => self.on_source_answered(survey, questions),
            Err(Failure::Link(why)) => self.on_source_silent(&why, began, questions),
            Err(Failure::Source(error)) => {
                tracing::warn!(mirror = %self.shared.name, ?error, "the source refuses");
                self.asking.failures = 0;
                self.on_source_reached();
                questions.into_iter().for_each(|question| question.refuse(error.clone()));
            }
        }
        if let Some(at) = self.asking.next_at.take() {
            self.want_survey_at(at);
        } else if !self.asking.waiting.is_empty() {
            self.want_survey();
        }
    }

    fn on_source_answered(&mut self, survey: Survey, questions: Vec<Question>) {
        self.asking.failures = 0;
        self.on_source_reached();
        if let Err(error) = self.check_and_record(&survey) {
            self.asking.survey = None;
            questions.into_iter().for_each(|question| question.refuse(error.clone()));
            self.fail_all(&error);
            return;
        }
        for topic in survey.topic_names() {
            let missing = survey.is_missing(topic);
            self.asking.note(topic, missing);
        }
        self.asking.survey = Some(survey);
        for question in questions {
            self.answer(question);
        }
        self.reassign_all();
        self.grow_topics();
    }

    fn on_source_silent(&mut self, why: &str, began: TimestampMs, questions: Vec<Question>) {
        self.asking.failures = self.asking.failures.saturating_add(1);
        let since = self.unreachable_since(began);
        if self.asking.failures == 1 {
            tracing::warn!(mirror = %self.shared.name, why, "the source does not answer");
        }
        let error = SourceError::Unreachable { since };
        questions.into_iter().for_each(|question| question.refuse(error.clone()));
        self.tell_all_unreachable(since);
        let seed = u64::from(self.directory.node_id().0.unsigned_abs());
        let pause = Backoff::PROBE.delay_ms(self.asking.failures, seed);
        self.want_survey_in(Duration::from_millis(u64::try_from(pause).unwrap_or(0)));
    }

    fn answer(&mut self, question: Question) {
        let Some(survey) = &self.asking.survey else {
            return question.refuse(SourceError::NotLeader);
        };
        match question {
            Question::Probe { reply } => send(reply, Ok(())),
            Question::Facts { partition, reply } => match survey.facts(&partition) {
                // It came while a look without the source's mirrors was under way.
                Ok(_)
                    if !survey.knows_mirrors()
                        && self.directory.image().cluster.id().is_some() =>
                {
                    self.ask(Question::Facts { partition, reply });
                }
                Ok(facts) => send(reply, Ok(facts)),
                Err(fault) => self.answer_fault(fault, Question::Facts { partition, reply }),
            },
            Question::EpochEnd { partition, epoch, reply } => match survey.leader(&partition) {
                Ok(leader) => match leader.broker {
                    Some(broker) => self.ask_epoch_end(partition, broker, epoch, reply),
                    None => send(reply, Err(SourceError::NotLeader)),
                },
                Err(fault) => {
                    self.answer_fault(fault, Question::EpochEnd { partition, epoch, reply });
                }
            },
        }
    }

    /// A topic that is missing for the first time is looked for once more before anybody hears of
    /// it.
    fn answer_fault(&mut self, fault: TopicFault, question: Question) {
        match fault {
            TopicFault::Failed(error) => question.refuse(error),
            TopicFault::Missing => match question.partition() {
                Some(partition) if !self.asking.is_deleted(&partition.topic) => {
                    self.asking.waiting.push(question);
                    self.look_again_for_missing();
                }
                Some(_) | None => question.refuse(SourceError::TopicDeleted),
            },
        }
    }

    /// Looks for missing topics a second time.
    pub(super) fn look_again_for_missing(&mut self) {
        // Not earlier than the pause, whatever the jitter.
        self.want_survey_at(Instant::now() + MISSING_PAUSE);
    }

    fn ask_epoch_end(
        &mut self,
        partition: SourcePartition,
        leader: i32,
        epoch: LeaderEpoch,
        reply: Reply<Option<EpochEnd>>,
    ) {
        let client = self.client.clone();
        let shared = Arc::clone(&self.shared);
        let directory = Arc::clone(&self.directory);
        self.spawn(async move {
            let end = source::epoch_end(client, partition, leader, epoch, QUESTION_DEADLINE).await;
            let end = end.map_err(|failure| match failure {
                // One broker is down; who leads now is asked with the next try.
                Failure::Link(_) if shared.unreachable_since().is_none() => SourceError::NotLeader,
                failure => unanswered(&directory, &shared, failure),
            });
            send(reply, end);
        });
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

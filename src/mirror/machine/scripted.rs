//! Runs the machine's golden scripts. Owns the little language they are written in; the scripts
//! and what they print are in `testscripts/`.

use std::collections::BTreeMap;
use std::fmt::Write;

use protocol::ids::{LeaderEpoch, Offset, ProducerId, TimestampMs, TopicId};

use super::*;
use crate::GOLDEN;
use crate::epochs::EpochEnd;
use crate::retry::Backoff;
use crate::truncation::LogFacts;

/// A command's words: `name key=value flag`.
struct Words<'a> {
    flags: Vec<&'a str>,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> (&'a str, Words<'a>) {
        let mut parts = text.split(' ');
        let name = parts.next().expect("a command has a name");
        let mut words = Words { flags: Vec::new(), values: BTreeMap::new() };
        for part in parts {
            match part.split_once('=') {
                Some((key, value)) => {
                    words.values.insert(key, value);
                }
                None => words.flags.push(part),
            }
        }
        (name, words)
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    fn number(&self, key: &str, default: i64) -> i64 {
        self.values.get(key).map_or(default, |value| value.parse().expect("a number"))
    }

    fn offset(&self, key: &str) -> Offset {
        Offset(self.number(key, 0))
    }

    fn epoch(&self, key: &str) -> LeaderEpoch {
        LeaderEpoch(i32::try_from(self.number(key, -1)).expect("an epoch"))
    }

    fn text(&self, key: &str) -> String {
        self.values.get(key).copied().unwrap_or_default().replace('_', " ")
    }

    fn desired(&self) -> DesiredState {
        match self.values.get("desired").copied() {
            Some("paused") => DesiredState::Paused,
            Some("stopped") => DesiredState::Stopped,
            _ => DesiredState::Active,
        }
    }

    fn record(&self) -> ControllerRecord {
        ControllerRecord {
            mirrored_before: self.has("mirrored-before"),
            nothing_mirrored: self.has("nothing-mirrored"),
            stopped: self.has("stopped"),
            last_mirror_epoch: self.epoch("lme"),
            last_mirrored_offset: Offset(self.number("last", -1)),
        }
    }

    fn retries(&self) -> FailureRetries {
        let usual = FailureRetries::default();
        let backoff = Backoff { initial_ms: self.number("initial", 1_000), ..usual.backoff };
        let attempts_max = i16::try_from(self.number("attempts", 100)).expect("a few attempts");
        FailureRetries { backoff, attempts_max }
    }

    fn log(&self) -> LogFacts {
        let open = self.values.get("open").copied().unwrap_or_default();
        LogFacts {
            start: self.offset("start"),
            end: self.offset("end"),
            newest_epoch: self.epoch("newest"),
            open_transactions: open
                .split(',')
                .filter(|id| !id.is_empty())
                .map(|id| ProducerId(id.parse().expect("a producer id")))
                .collect(),
        }
    }

    fn end(&self) -> Option<EpochEnd> {
        (!self.has("none"))
            .then(|| EpochEnd { epoch: self.epoch("epoch"), end_offset: self.offset("end") })
    }

    fn source_error(&self) -> SourceError {
        match self.flags.first().copied() {
            Some("unreachable") => {
                SourceError::Unreachable { since: TimestampMs(self.number("since", 0)) }
            }
            Some("not-leader") => SourceError::NotLeader,
            Some("not-authorized") => SourceError::NotAuthorized { right: self.text("right") },
            Some("deleted") => SourceError::TopicDeleted,
            Some("recreated") => SourceError::TopicRecreated { found: TopicId::ZERO },
            Some("changed") => {
                SourceError::ClusterChanged { expected: "one".into(), found: "other".into() }
            }
            Some("old-format") => SourceError::OldFormat,
            _ => SourceError::Other { reason: self.text("reason") },
        }
    }
}

/// The machine, the coordinator's row and the clock of one script.
struct Script {
    machine: PartitionMirror,
    durable: Option<StoredState>,
    now: TimestampMs,
}

impl Script {
    fn command(&mut self, text: &str) -> String {
        let (name, words) = Words::new(text);
        if name == "at" {
            self.now = TimestampMs(words.flags[0].parse().expect("a time"));
            return String::new();
        }
        if name == "crash" {
            self.machine = PartitionMirror::Following;
            return String::new();
        }
        if name == "stored" {
            return self.stored(&words);
        }
        let event = self.event(name, &words);
        if let MirrorEvent::Store(StoreEvent::Written { .. }) = event {
            self.durable = self.machine.in_flight().cloned();
        }
        match next(&self.machine, event, self.now) {
            Ok((machine, effects)) => {
                self.machine = machine;
                let mut out = String::new();
                for effect in effects {
                    writeln!(out, "{effect}").expect("a string takes all");
                }
                writeln!(out, "= {}, {:?}", self.machine.doing(), self.machine.write_access())
                    .expect("a string takes all");
                out
            }
            Err(error) => format!("! {error}\n"),
        }
    }

    fn stored(&mut self, words: &Words<'_>) -> String {
        let state = MirrorState::from_name(words.flags[0]).expect("a state");
        let previous = words.flags.get(1).and_then(|name| MirrorState::from_name(name));
        self.durable = Some(StoredState {
            state,
            previous: previous.unwrap_or(MirrorState::Unknown),
            attempt: i16::try_from(words.number("attempt", 0)).expect("an attempt"),
            leader_epoch: words.epoch("epoch"),
            transition: words.number("transition", 7),
            last_mirror_epoch: words.epoch("lme"),
            last_mirrored_offset: Offset(words.number("last", -1)),
            ..StoredState::unknown()
        });
        String::new()
    }

    fn transition(&self) -> i64 {
        self.machine.in_flight().map_or(0, |row| row.transition)
    }

    fn event(&self, name: &str, words: &Words<'_>) -> MirrorEvent {
        let transition = self.transition();
        match name {
            "become-leader" => LeadershipEvent::BecameLeader {
                leader_epoch: words.epoch("epoch"),
                desired: words.desired(),
                record: words.record(),
                jitter_seed: 1,
                retries: words.retries(),
            }
            .into(),
            "lost-leadership" => LeadershipEvent::LostLeadership.into(),
            "raised" => {
                LeadershipEvent::LeaderEpochRaised { leader_epoch: words.epoch("epoch") }.into()
            }
            "controller" => LeadershipEvent::ControllerChanged {
                desired: words.desired(),
                record: words.record(),
            }
            .into(),
            "read" => StoreEvent::Read(self.durable.clone()).into(),
            "read-failed" => StoreEvent::ReadFailed.into(),
            "written" => StoreEvent::Written { transition }.into(),
            "fenced" => StoreEvent::Fenced { transition }.into(),
            "write-failed" => StoreEvent::WriteFailed { transition }.into(),
            "woke" => MirrorEvent::Woke,
            "step-failed" => MirrorEvent::StepFailed { reason: words.text("reason") },
            _ => work_event(name, words),
        }
    }
}

fn work_event(name: &str, words: &Words<'_>) -> MirrorEvent {
    match name {
        "log" => LogEvent::Facts(words.log()).into(),
        "epoch-end" => LogEvent::EpochEnd(words.end()).into(),
        "truncated" => LogEvent::Truncated {
            log_end: words.offset("end"),
            records_cut: words.number("cut", 0),
        }
        .into(),
        "aligned" => LogEvent::FollowersAligned.into(),
        "source" => SourceEvent::Facts(SourceFacts {
            leader_epoch: words.epoch("epoch"),
            last_mirror_epoch: words.epoch("lme"),
            mirroring_from_us: words.values.get("loop").map(|name| (*name).to_owned()),
        })
        .into(),
        "source-epoch-end" => SourceEvent::EpochEnd(words.end()).into(),
        "source-failed" => SourceEvent::Failed(words.source_error()).into(),
        "reached" => SourceEvent::Reached.into(),
        "fetched" => FetchEvent::Succeeded.into(),
        "epoch-seen" => FetchEvent::EpochSeen { epoch: words.epoch("epoch") }.into(),
        "epoch-too-high" => FetchEvent::EpochTooHigh { epoch: words.epoch("epoch") }.into(),
        "diverged" => {
            FetchEvent::Diverged { epoch: words.epoch("epoch"), end_offset: words.offset("end") }
                .into()
        }
        "out-of-range" => FetchEvent::OutOfRange {
            source_start: words.offset("source-start"),
            source_end: words.offset("source-end"),
            log_start: words.offset("start"),
            log_end: words.offset("end"),
        }
        .into(),
        "fetching-stopped" => StopEvent::FetchingStopped.into(),
        "high-watermark" => StopEvent::HighWatermarkReached(words.log()).into(),
        "aborts-appended" => StopEvent::AbortsAppended.into(),
        "reset-searched" => StopEvent::ResetSearched { epoch: words.epoch("epoch") }.into(),
        "reset-appended" => StopEvent::ResetAppended.into(),
        _ => panic!("unknown command {name}"),
    }
}

#[test]
fn scripts_print_what_they_printed() {
    for name in GOLDEN.scripts() {
        let mut script =
            Script { machine: PartitionMirror::Following, durable: None, now: TimestampMs(0) };
        GOLDEN.run(&name, |command| script.command(command));
    }
}

#[test]
fn transition_table_is_the_documented_one() {
    let mut out = String::from("# which durable state may follow which\n");
    for from in MirrorState::ALL {
        let to: Vec<&str> = MirrorState::ALL
            .into_iter()
            .filter(|to| *to != from && from.may_become(*to))
            .map(MirrorState::name)
            .collect();
        writeln!(out, "{from} -> {}", to.join(", ")).expect("a string takes all");
    }
    GOLDEN.check("transitions.txt", &out);
}

//! Runs the golden scripts of the metadata: comment, command, output.
//!
//! A script is lines: `#` is a comment, `>` a command, anything else the output of the command
//! above. Each command decides on one image, replays what was decided and prints both. Whatever
//! the script says, its log is then replayed again, as one batch and as a snapshot, and all must
//! give equal images; `UPDATE_GOLDEN=1` writes the outputs anew.

mod arguments;
mod commands;
mod show;

use std::path::PathBuf;

use crate::delta::MetadataDelta;
use crate::image::MetadataImage;
use crate::records::MetadataRecord;

/// The state of a script: an image, the log that made it, and the next ids.
pub(crate) struct Script {
    pub(crate) image: MetadataImage,
    log: Vec<MetadataRecord>,
    delta: MetadataDelta,
    next_id: u128,
}

impl Script {
    fn new() -> Self {
        Self {
            image: MetadataImage::default(),
            log: Vec::new(),
            delta: MetadataDelta::default(),
            next_id: 1,
        }
    }

    /// Replays what was decided, as one Raft entry, and gives a line for each record.
    pub(crate) fn apply(&mut self, records: Vec<MetadataRecord>) -> Vec<String> {
        let mut lines = Vec::new();
        let mut before = self.image.clone();
        for record in &records {
            lines.push(format!("+ {}", show::record(&self.image, record)));
            self.image.replay(record).expect("a decided record replays");
        }
        self.delta.merge(before.replay_batch(&records).expect("a decided batch replays"));
        self.log.extend(records);
        self.image.check_invariants();
        lines
    }

    /// Topic ids as a controller would draw them, small and in order.
    pub(crate) fn fresh_ids(&mut self, count: usize) -> Vec<protocol::ids::TopicId> {
        let ids = (self.next_id..).take(count).map(|n| uuid::Uuid::from_u128(n).into()).collect();
        self.next_id += u128::try_from(count).expect("few topics are made at once");
        ids
    }

    fn check_replays(&self) {
        let mut again = MetadataImage::default();
        again.replay_batch(&self.log).expect("the log replays");
        assert_eq!(again, self.image, "a second replay gives another image");
        let snapshot = MetadataImage::try_from(self.image.to_records()).expect("it replays");
        assert_eq!(snapshot, self.image, "a snapshot gives another image");
        let between = MetadataDelta::between(&MetadataImage::default(), &self.image);
        assert!(between.topics.is_subset(&self.delta.topics), "a topic is in no delta");
        assert!(
            between.partitions.is_subset(&self.delta.partitions),
            "a partition is in no delta"
        );
        assert!(between.mirrors.is_subset(&self.delta.mirrors), "a mirror is in no delta");
    }
}

fn run(text: &str) -> String {
    let mut script = Script::new();
    let mut output = String::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix('>') {
            output.push_str(line);
            output.push('\n');
            for line in commands::run(&mut script, command.trim()) {
                output.push_str(&line);
                output.push('\n');
            }
        } else if line.is_empty() || line.starts_with('#') {
            output.push_str(line);
            output.push('\n');
        }
    }
    script.check_replays();
    output
}

#[test]
fn scripts_give_what_they_say() {
    let folder: PathBuf = crate::GOLDEN.folder().join("metadata");
    let entries = std::fs::read_dir(&folder).expect("the scripts' folder exists");
    let mut files: Vec<String> = entries
        .map(|entry| entry.expect("the folder is readable").file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    files.sort();
    assert!(files.len() >= 10, "the scripts are there");
    for file in files {
        let text = std::fs::read_to_string(folder.join(&file)).expect("a script is readable");
        crate::GOLDEN.check(&format!("metadata/{file}"), &run(&text));
    }
}

/// One command line out of a few numbers: topics `a` to `d`, brokers 1 to 4, mirrors `m` and `n`.
fn random_command(kind: u8, broker: u8, topic: u8, number: u8, step: usize) -> String {
    let epoch = 1000 + step;
    let name = ["a", "b", "c", "d"][usize::from(topic % 4)];
    let mirror = ["m", "n"][usize::from(number % 2)];
    let broker = 1 + broker % 4;
    let other = 1 + number % 4;
    match kind % 16 {
        0 | 1 => format!("register {broker} dir={broker} incarnation={epoch} epoch={epoch}"),
        2..=4 => format!("heartbeat {broker}"),
        5 => format!("heartbeat {broker} shutdown"),
        6 => format!("fence {broker}"),
        7 => format!("create {name} partitions=2 rf={other}"),
        8 => format!("isr {name} 0 by={broker} isr={broker},{other}"),
        9 => format!("isr {name} 1 by={broker} isr={broker}"),
        10 => format!("start {mirror} {name}:{}:{}", 500 + u16::from(topic % 4), number % 4),
        11 => format!("stop {mirror} {name}"),
        12 => format!("stopped {mirror} {name} {} epoch={}", number % 2, number / 64),
        13 => format!("bump {name} 0 {number}"),
        14 => format!("grow {name} {} as=mirror", number % 6),
        _ if number.is_multiple_of(4) => format!("delete {name}"),
        _ => "preferred".to_owned(),
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever is asked, in whatever order: each decision replays, the invariants hold after
    /// each, and the log gives the same image again.
    #[test]
    fn any_commands_keep_the_image_sound(
        steps in proptest::collection::vec(proptest::prelude::any::<(u8, u8, u8, u8)>(), 0..120)
    ) {
        let mut script = Script::new();
        for line in ["boot", "brokers 1 2 3", "mirror m bootstrap.servers=h:1",
            "mirror n bootstrap.servers=i:1"]
        {
            commands::run(&mut script, line);
        }
        for (step, (kind, broker, topic, number)) in steps.into_iter().enumerate() {
            commands::run(&mut script, &random_command(kind, broker, topic, number, step));
        }
        script.check_replays();
    }
}

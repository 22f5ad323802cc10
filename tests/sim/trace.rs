//! What a run did, in order: every event of our crates and every note of a test, with the virtual
//! time, and that openraft did something in between. Its hash says whether two runs were the same.
//! It holds nothing that differs between runs of one seed: no thread, no span, no id of an actor.

use std::fmt::{Debug, Write as _};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// The crates whose events count. Others show instants of the machine's clock.
const CRATES: [&str; 6] = ["actors", "raft", "log", "net", "coordinator", "mirror"];

/// Whose events count without their words, which hold instants too: a run that parts inside of it
/// need not show in any line of ours.
const WORDLESS: &str = "openraft";

/// Lines that are kept for a failed run.
const KEPT_LINES_MAX: usize = 2_000_000;

/// Lines of one moment after which virtual time counts as standing still.
const LINES_OF_A_MOMENT_MAX: usize = 100_000;

/// A trace that grows. Clones are the same trace.
#[derive(Clone, Default)]
pub struct Trace {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    started: Option<Instant>,
    hasher: DefaultHasher,
    lines: Vec<String>,
    /// The hash after each line.
    hashes: Vec<u64>,
    /// The moment of the last line, and how many lines it has.
    moment: (Duration, usize),
    over: bool,
}

impl Trace {
    /// Counts time from now.
    pub fn start(&self) {
        self.state.lock().unwrap().started = Some(Instant::now());
    }

    /// Takes nothing more: the runtime ends, and drops what is left in an order of its own.
    pub fn end(&self) {
        self.state.lock().unwrap().over = true;
    }

    /// Adds a line.
    pub fn note(&self, text: &str) {
        let mut state = self.state.lock().unwrap();
        let Some(started) = state.started.filter(|_| !state.over) else {
            return;
        };
        let elapsed = started.elapsed();
        let line = format!("{:>9.3} {text}", elapsed.as_secs_f64());
        state.count(elapsed);
        // Constant keys: equal lines give equal hashes in every process of one build.
        state.hasher.write(line.as_bytes());
        state.hasher.write_u8(b'\n');
        if state.lines.len() < KEPT_LINES_MAX {
            state.lines.push(line);
            let hash = state.hasher.finish();
            state.hashes.push(hash);
        }
    }

    /// Counts an event whose words are left out.
    fn note_wordless(&self, target: &str) {
        let mut state = self.state.lock().unwrap();
        if let Some(started) = state.started.filter(|_| !state.over) {
            state.hasher.write_u128(started.elapsed().as_nanos());
            state.hasher.write(target.as_bytes());
        }
    }

    /// The hash of all lines.
    pub fn hash(&self) -> u64 {
        self.state.lock().unwrap().hasher.finish()
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.state.lock().unwrap().lines.len()
    }

    /// The last lines, for a failed run.
    pub fn tail(&self, lines: usize) -> String {
        let state = self.state.lock().unwrap();
        state.lines[state.lines.len().saturating_sub(lines)..].join("\n")
    }

    /// Where two traces part, with a few lines before; `None` when they do not.
    pub fn difference(&self, other: &Trace) -> Option<String> {
        if self.hash() == other.hash() {
            return None;
        }
        let (one, two) = (self.state.lock().unwrap(), other.state.lock().unwrap());
        let hashes = one.hashes.iter().zip(&two.hashes);
        let at = hashes.take_while(|(one, two)| one == two).count();
        let around = |lines: &[String]| {
            lines[at.saturating_sub(8).min(lines.len())..(at + 4).min(lines.len())].join("\n")
        };
        let (one, two) = (around(&one.lines), around(&two.lines));
        Some(format!("line {at}, or in {WORDLESS} before it:\n{one}\n--- but ---\n{two}"))
    }
}

impl State {
    /// Ends the process when time stands still: no test would end by itself.
    fn count(&mut self, elapsed: Duration) {
        if self.moment.0 == elapsed {
            self.moment.1 += 1;
        } else {
            self.moment = (elapsed, 0);
        }
        if self.moment.1 > LINES_OF_A_MOMENT_MAX {
            let lines = &self.lines[self.lines.len().saturating_sub(40)..];
            eprintln!("virtual time stands still at {elapsed:?}:\n{}", lines.join("\n"));
            std::process::exit(101);
        }
    }
}

impl<S: Subscriber> Layer<S> for Trace {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        let name = metadata.target().split("::").next().unwrap_or_default();
        if name == WORDLESS {
            return self.note_wordless(metadata.target());
        }
        if !CRATES.contains(&name) || *metadata.level() > Level::DEBUG {
            return;
        }
        let mut line = Line(format!("{} {}:", metadata.level(), metadata.target()));
        event.record(&mut line);
        self.note(&line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

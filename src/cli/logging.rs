//! Where the process's log lines go: standard error, quiet unless RUST_LOG says otherwise. Owns
//! the default filter; nothing else in the command line sets one up.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::EnvFilter;

/// Set when the process ends at once: a subscriber cannot be taken away again.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Libraries that speak at their own levels of what is ordinary here, such as an election.
const TALKATIVE: [&str; 2] = ["openraft", "sled"];

/// Starts logging from `level` on. RUST_LOG is taken as it is instead; a library it does not name
/// stays quiet.
pub fn start(level: &str) {
    let asked = std::env::var("RUST_LOG").unwrap_or_default();
    let filter = EnvFilter::builder().parse_lossy(directives(&asked, level));
    let started = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
    if let Err(error) = started {
        eprintln!("heliograph: log lines are not shown: {error}");
    }
}

/// Shows no line any more.
pub fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

fn writer() -> Box<dyn Write> {
    if SILENT.load(Ordering::Relaxed) { Box::new(io::sink()) } else { Box::new(io::stderr()) }
}

fn directives(asked: &str, level: &str) -> String {
    let mut directives = if asked.is_empty() { level.to_owned() } else { asked.to_owned() };
    for library in TALKATIVE {
        if !asked.contains(library) {
            let quiet = if asked.is_empty() { "off" } else { "warn" };
            directives.push_str(&format!(",{library}={quiet}"));
        }
    }
    directives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_stay_quiet_unless_they_are_named() {
        assert_eq!(directives("", "warn"), "warn,openraft=off,sled=off");
        assert_eq!(directives("info", "warn"), "info,openraft=warn,sled=warn");
        assert_eq!(directives("warn,openraft=debug", "error"), "warn,openraft=debug,sled=warn");
    }
}

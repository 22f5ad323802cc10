//! The code about the code: what clippy cannot see of how the sources are laid out.
//!
//! Owns every check of the layout, the file heads, the sizes and the direction of dependencies;
//! reads the tree that git knows and `cargo metadata`. Never changes a file, checks what exists.
//! Each check is a pure function over one file or the whole tree, tested below on small inputs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use regex::Regex;
use serde_json::Value;

/// The root holds these and names that begin with a dot, nothing else.
const ROOT_ENTRIES: [&str; 12] = [
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "actors",
    "config",
    "deny.toml",
    "raft",
    "rust-toolchain.toml",
    "scripts",
    "src",
    "tests",
];
const TESTS_ENTRIES: [&str; 4] = ["interop", "it", "sim", "tidy.rs"];
const DRAWERS: [&str; 7] = ["utils", "util", "common", "helpers", "helper", "misc", "types"];
const LINE_COLUMNS_MAX: usize = 99;
const FILE_LINES_MAX: usize = 1_000;
const PRODUCTION_LINES_MAX: usize = 600;
const INLINE_TEST_LINES_MAX: usize = 200;
const FILE_LINES_MEDIAN_MAX: usize = 250;
const FILE_LINES_P90_MAX: usize = 600;
const SPREAD_FILES_MIN: usize = 20;
const MAIN_LINES_MAX: usize = 60;
const README_LINES_MAX: usize = 299;
const FILE_BYTES_MAX: usize = 1 << 20;

/// Which of our crates each crate may name. A crate that is not here may name none.
const DIRECTION: [(&str, &[&str]); 9] = [
    ("protocol", &[]),
    ("config", &[]),
    ("log", &["protocol"]),
    ("mirror", &["protocol"]),
    ("coordinator", &["protocol"]),
    ("net", &["protocol", "config"]),
    ("raft", &["protocol", "config", "log", "mirror", "coordinator"]),
    ("actors", &["protocol", "config", "log", "mirror", "coordinator", "net", "raft"]),
    (
        "heliograph",
        &["protocol", "config", "log", "mirror", "coordinator", "net", "raft", "actors"],
    ),
];

/// An outside world and the one crate that may name it.
const WORLDS: [(&str, &str); 4] =
    [("ractor", "actors"), ("openraft", "raft"), ("sled", "raft"), ("socket2", "net")];

/// These never reach an async runtime, not even through another crate.
const WITHOUT_RUNTIME: [&str; 5] = ["protocol", "log", "mirror", "coordinator", "config"];
const RUNTIMES: [&str; 5] = ["tokio", "async-std", "smol", "mio", "ractor"];

/// These hold no clock, no randomness, no thread and no `async fn`.
const PURE: [&str; 4] = ["src/protocol/", "src/mirror/", "src/coordinator/", "config/"];
const IMPURE: [(&str, &str); 7] = [
    ("async fn", "decide in pure code and act in `actors`"),
    (".await", "decide in pure code and act in `actors`"),
    ("SystemTime::now", "take `now` as an argument"),
    ("Instant::now", "take `now` as an argument"),
    ("thread::spawn", "start threads in `log` or `actors`"),
    ("thread::sleep", "take a tick as an argument"),
    ("Uuid::new_v4", "take the id as an argument"),
];

/// The settings as plain data, and the fields that nothing needs yet: `dev` says by itself where
/// logs lie and what a node is, and patterns are kept for discovery.
const SETTINGS: [&str; 3] = ["config/broker.rs", "config/topic.rs", "config/mirror.rs"];
const UNREAD_SETTINGS: [&str; 3] = ["log_dirs", "roles", "topics_include"];

struct File {
    path: String,
    /// None where the bytes are not UTF-8.
    text: Option<String>,
    bytes: usize,
}

struct Fault {
    path: String,
    line: usize,
    fix: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.fix)
    }
}

fn fault(path: &str, line: usize, fix: impl Into<String>) -> Fault {
    Fault { path: path.to_owned(), line, fix: fix.into() }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns of this file are valid")
}

// ---- the tree ----

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Everything git knows or would add, as it lies in the work tree.
fn tree() -> Vec<File> {
    let listed = run("git", &["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let paths: BTreeSet<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    let read = |path: &str| -> Option<File> {
        let bytes = std::fs::read(root().join(path)).ok()?;
        let size = bytes.len();
        Some(File { path: path.to_owned(), text: String::from_utf8(bytes).ok(), bytes: size })
    };
    paths.into_iter().filter_map(read).collect()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?} failed: {message}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs one check over every file whose name ends with one of the endings.
fn each(endings: &[&str], check: impl Fn(&str, &str) -> Vec<Fault>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for file in tree() {
        let wanted = endings.iter().any(|ending| file.path.ends_with(ending));
        if let (true, Some(text)) = (wanted, &file.text) {
            faults.extend(check(&file.path, text));
        }
    }
    faults
}

fn assert_tidy(faults: &[Fault]) {
    let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    assert!(faults.is_empty(), "\n{} faults:\n{}\n", lines.len(), lines.join("\n"));
}

// ---- layout ----

fn check_root<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<Fault> {
    let allowed = |entry: &str| entry.starts_with('.') || ROOT_ENTRIES.contains(&entry);
    let entries: BTreeSet<&str> = paths.filter_map(|path| path.split('/').next()).collect();
    let strangers = entries.into_iter().filter(|entry| !allowed(entry));
    strangers.map(|entry| fault(entry, 1, "the root is fixed: move this into a folder")).collect()
}

fn check_tests_listing<'a>(paths: impl Iterator<Item = &'a str>) -> Vec<Fault> {
    let inner = paths.filter_map(|path| path.strip_prefix("tests/"));
    let entries: BTreeSet<&str> = inner.filter_map(|path| path.split('/').next()).collect();
    let strangers = entries.into_iter().filter(|entry| !TESTS_ENTRIES.contains(entry));
    let fix = "tests/ holds interop, it, sim and tidy.rs: put this into one of them";
    strangers.map(|entry| fault(&format!("tests/{entry}"), 1, fix)).collect()
}

fn check_name(path: &str) -> Vec<Fault> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split('.').next().unwrap_or(file);
    let folders = path.split('/').rev().skip(1);
    let mut faults = Vec::new();
    if file == "mod.rs" {
        let fix = "mod.rs is banned: name the file after its module, beside the folder";
        faults.push(fault(path, 1, fix));
    }
    for name in std::iter::once(stem).chain(folders).filter(|name| DRAWERS.contains(name)) {
        faults.push(fault(path, 1, format!("`{name}` is a drawer: name it after what it owns")));
    }
    faults
}

fn check_stray(file: &File) -> Vec<Fault> {
    const BUILT: [&str; 8] =
        [".jar", ".class", ".pyc", ".so", ".o", ".snap.new", ".orig", ".profraw"];
    const BUILT_FOLDERS: [&str; 5] = ["target/", ".kafka/", ".venv/", "__pycache__/", ".idea/"];
    let mut faults = Vec::new();
    let in_built = |folder: &&str| file.path.starts_with(*folder) || file.path.contains(*folder);
    let built = BUILT.iter().any(|ending| file.path.ends_with(ending));
    if built || BUILT_FOLDERS.iter().any(in_built) {
        faults.push(fault(&file.path, 1, "built files stay out: remove it and ignore it"));
    }
    if file.bytes > FILE_BYTES_MAX {
        faults.push(fault(&file.path, 1, "files above 1 MiB stay out: make it in the test"));
    }
    // The names are put together so that this file does not hold them.
    let homes = regex(&["(^|[\\s\"'`=(:])/(", "home|root|work", ")/"].concat());
    for (number, line) in numbered(file.text.as_deref().unwrap_or_default()) {
        if homes.is_match(line) {
            let fix = "a path of one machine: take it from the environment or a temporary folder";
            faults.push(fault(&file.path, number, fix));
        }
        if line.contains(concat!("-----BEGIN ", "PRIVATE KEY")) {
            faults.push(fault(&file.path, number, "keys stay out: make one in the test"));
        }
    }
    faults
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

// ---- heads, sizes, leftovers ----

fn check_head(path: &str, text: &str) -> Vec<Fault> {
    if text.starts_with("//!") {
        return Vec::new();
    }
    vec![fault(path, 1, "open with `//!`: what the file owns, and what it never does")]
}

/// A table of messages opens with a comment, too: versions served, behaviour, KIPs (S26).
fn check_schema_head(path: &str, text: &str) -> Vec<Fault> {
    let is_comment = |line: &str| line.starts_with('#') || line.starts_with("//");
    if text.lines().next().is_some_and(|line| is_comment(line) && line.len() > 10) {
        return Vec::new();
    }
    vec![fault(path, 1, "open with a comment: versions served, behaviour, KIPs by version")]
}

fn check_width(path: &str, text: &str) -> Vec<Fault> {
    // A link cannot be broken.
    let wide = |line: &str| line.chars().count() > LINE_COLUMNS_MAX && !line.contains("://");
    let lines = numbered(text).filter(|(_, line)| wide(line));
    let fix = format!("longer than {LINE_COLUMNS_MAX} columns: break the line");
    lines.map(|(number, _)| fault(path, number, fix.clone())).collect()
}

/// Lines outside and inside of `#[cfg(test)] mod … { … }` blocks.
fn production_and_test_lines(text: &str) -> (usize, usize) {
    let lines: Vec<&str> = text.lines().collect();
    let mut inside = 0;
    let mut index = 0;
    while index + 1 < lines.len() {
        let opens = lines[index + 1].starts_with("mod ") && lines[index + 1].ends_with('{');
        if lines[index] == "#[cfg(test)]" && opens {
            let length = lines[index..].iter().position(|line| *line == "}");
            let length = length.map_or(lines.len() - index, |position| position + 1);
            inside += length;
            index += length;
        } else {
            index += 1;
        }
    }
    (lines.len() - inside, inside)
}

fn is_test_path(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests") || path.ends_with("_tests.rs")
}

fn check_length(path: &str, text: &str) -> Vec<Fault> {
    let (production, tests) = production_and_test_lines(text);
    let mut faults = Vec::new();
    if production + tests > FILE_LINES_MAX {
        let fix = format!("{} lines, above {FILE_LINES_MAX}: split the file", production + tests);
        faults.push(fault(path, 1, fix));
    }
    if !is_test_path(path) && production > PRODUCTION_LINES_MAX {
        let fix =
            format!("{production} lines of code, above {PRODUCTION_LINES_MAX}: split the file");
        faults.push(fault(path, 1, fix));
    }
    if tests > INLINE_TEST_LINES_MAX {
        let fix = format!("{tests} lines of inline tests: move them to a sibling `…_tests.rs`");
        faults.push(fault(path, 1, fix));
    }
    faults
}

fn check_length_spread(lengths: &[usize]) -> Vec<Fault> {
    // A handful of files has no spread worth a name.
    if lengths.len() < SPREAD_FILES_MIN {
        return Vec::new();
    }
    let mut sorted = lengths.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted.get(sorted.len() * percent / 100).copied().unwrap_or(0);
    let bars = [(50, FILE_LINES_MEDIAN_MAX), (90, FILE_LINES_P90_MAX)];
    let above = bars.into_iter().filter(|(percent, most)| at(*percent) > *most);
    let fix = |percent| format!("p{percent} of file length is {}: split long files", at(percent));
    above.map(|(percent, most)| fault("all files", most, fix(percent))).collect()
}

fn check_leftovers(path: &str, text: &str) -> Vec<Fault> {
    let fixme = regex(concat!(r"\b(FIX", r"ME|XX", r"X)\b"));
    let todo = regex(concat!(r"\bTO", r"DO\b(\(#\d+\))?"));
    let macros = regex(concat!(r"\b(db", r"g|to", r"do|unimple", r"mented)!\s*[(\[{]"));
    let mut faults = Vec::new();
    for (number, line) in numbered(text) {
        if fixme.is_match(line) {
            faults.push(fault(path, number, "a leftover: fix it, or file an issue"));
        }
        if todo.captures_iter(line).any(|found| found.get(1).is_none()) {
            faults.push(fault(path, number, "a task without an issue: do it, or name its issue"));
        }
        if path.ends_with(".rs") && macros.is_match(line) {
            faults.push(fault(path, number, "a leftover macro: write the real body, or log it"));
        }
    }
    faults
}

/// A comment that reads as code: a heuristic, so it wants a clear sign at both ends.
fn check_commented_code(path: &str, text: &str) -> Vec<Fault> {
    let code = regex(concat!(
        r"^\s*//\s*(",
        r"(pub(\(\w+\))? |let |use |return |mod |assert).*;$",
        r"|(pub(\(\w+\))? |async )*(fn|struct|enum|impl|trait) .*\{$",
        r"|(if|for|while|match) .*\{$",
        r"|\}( else \{|;|,|\))?$",
        r"|#!?\[.*\]$",
        r"|[\w.:]+\(.*\)\??;$",
        r"|[\w.]+ [-+*/]?= .*;$",
        r")"
    ));
    let found = numbered(text).filter(|(_, line)| code.is_match(line));
    let fix = "commented-out code: delete it, git keeps it";
    found.map(|(number, _)| fault(path, number, fix)).collect()
}

fn without_tests(text: &str) -> String {
    match text.find("\n#[cfg(test)]\nmod ") {
        Some(at) => text[..at].to_owned(),
        None => text.to_owned(),
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn check_pure(path: &str, text: &str) -> Vec<Fault> {
    let decides = path.starts_with("raft/") && text.contains("fn decide_");
    let pure = PURE.iter().any(|folder| path.starts_with(folder)) || decides;
    if !pure || is_test_path(path) || path.ends_with("build.rs") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (number, line) in numbered(&without_tests(text)).filter(|(_, line)| !is_comment(line)) {
        for (name, fix) in IMPURE.iter().filter(|(name, _)| line.contains(name)) {
            faults.push(fault(path, number, format!("`{name}` in pure code: {fix}")));
        }
    }
    faults
}

/// S18: a decision changes nothing.
fn check_decide(path: &str, text: &str) -> Vec<Fault> {
    let decide = regex(r"fn decide_\w+(<[^>]*>)?\(\s*&mut ");
    let line_of = |at: usize| text[..at].lines().count();
    let found = decide.find_iter(text);
    let fix = "a decision takes `&self` and returns records: only `replay` changes the image";
    found.map(|hit| fault(path, line_of(hit.start()) + 1, fix)).collect()
}

// ---- actors ----

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// S11: `Partition` lies in partition.rs, with its message, arguments, state and handle.
fn check_actor_names(files: &BTreeMap<&str, &str>) -> Vec<Fault> {
    let actor = regex(r"(?m)^impl(<.*>)? (ractor::)?Actor for (\w+)");
    let all: String = files.values().copied().collect::<Vec<_>>().join("\n");
    let mut faults = Vec::new();
    for (path, text) in files {
        for hit in actor.captures_iter(text) {
            let name = &hit[3];
            if !lies_in_its_file(path, name) {
                let file = snake_case(name);
                faults.push(fault(path, 1, format!("actor {name} belongs in {file}.rs")));
            }
            // Where nobody sends it a message but its own file, an actor needs no handle.
            let own = path.trim_end_matches(".rs");
            let message = format!("{name}Msg::");
            let called = files
                .iter()
                .any(|(other, text)| !other.starts_with(own) && text.contains(&message));
            let parts = if called {
                &["Msg", "Args", "State", "Handle"][..]
            } else {
                &["Msg", "Args", "State"]
            };
            for part in parts {
                let named = regex(&format!(r"\b(struct|enum|type) {name}{part}\b"));
                if !named.is_match(&all) {
                    let fix = format!("actor {name} has no {name}{part}: name it so");
                    faults.push(fault(path, 1, fix));
                }
            }
        }
    }
    faults
}

/// `ControllerLeader` lies in controller_leader.rs, or in controller/leader.rs.
fn lies_in_its_file(path: &str, actor: &str) -> bool {
    let path = path.trim_end_matches(".rs");
    let below: Vec<&str> = path.split('/').skip(1).collect();
    let wanted = snake_case(actor);
    (0..below.len()).any(|from| below[from..].join("_") == wanted || below[from] == wanted)
}

// ---- README ----

/// Every token that looks like a path of this repository, with its line.
fn readme_paths(text: &str) -> Vec<(usize, String)> {
    let token = regex(r"[\w.*-]+(/[\w.*-]+)*/?");
    let quoted = regex(r"`([^`]+)`|\]\(([^)]+)\)");
    let known = regex(r"(/|\.(rs|sh|toml|py|md|java))$");
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in numbered(text) {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let spans: Vec<&str> = if fenced {
            line.split_whitespace().collect()
        } else {
            let captures = quoted.captures_iter(line);
            let span = captures.filter_map(|hit| hit.get(1).or(hit.get(2)));
            span.flat_map(|hit| hit.as_str().split_whitespace()).collect()
        };
        for span in spans.into_iter().filter(|span| !span.contains("://")) {
            let span = span.trim_end_matches([',', '.', ';', ':', ')']);
            let span = span.split("::").next().unwrap_or(span);
            let whole = token.find(span).is_some_and(|hit| hit.as_str() == span);
            let rooted = ROOT_ENTRIES.iter().any(|entry| span.starts_with(&format!("{entry}/")));
            if whole && (known.is_match(span) || rooted || span.starts_with(".ci/")) {
                found.push((number, span.to_owned()));
            }
        }
    }
    found
}

fn check_readme(text: &str, exists: impl Fn(&str) -> bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > README_LINES_MAX {
        faults.push(fault("README.md", lines, "300 lines or more: cut it"));
    }
    for command in ["cargo run --release -- demo", "bash scripts/check.sh"] {
        if !text.contains(command) {
            faults.push(fault("README.md", 1, format!("say how to run `{command}`")));
        }
    }
    for (number, path) in readme_paths(text) {
        if !exists(&path) {
            let fix = format!("`{path}` does not exist: correct it or take it out");
            faults.push(fault("README.md", number, fix));
        }
    }
    faults
}

// ---- crates ----

fn short(name: &str) -> &str {
    name.strip_prefix("heliograph-").unwrap_or(name)
}

/// Our crates as (short name, dependency, is it a normal one).
fn our_dependencies(metadata: &Value) -> Vec<(String, String, bool)> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        if package["source"].is_null() {
            for dependency in package["dependencies"].as_array().into_iter().flatten() {
                let normal = dependency["kind"].is_null();
                let from = short(&text(package, "name")).to_owned();
                edges.push((from, text(dependency, "name"), normal));
            }
        }
    }
    edges
}

fn check_direction(edges: &[(String, String, bool)]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (from, to, normal) in edges {
        let ours = to.starts_with("heliograph") && *normal;
        let allowed = DIRECTION.iter().find(|(name, _)| name == from).map(|(_, allowed)| *allowed);
        if ours && !allowed.unwrap_or_default().contains(&short(to)) {
            let fix = format!("{from} may not name {to}: dependencies point one way (README)");
            faults.push(fault("Cargo.toml", 1, fix));
        }
        if let Some((world, owner)) = WORLDS.iter().find(|(world, _)| world == to)
            && from != owner
        {
            let fix = format!("{from} names {world}: only {owner} may, ask it through its API");
            faults.push(fault("Cargo.toml", 1, fix));
        }
    }
    faults
}

/// Takes the lines of `cargo tree -e normal --prefix none`.
fn check_runtime_free(name: &str, cargo_tree: &str) -> Vec<Fault> {
    let names = cargo_tree.lines().filter_map(|line| line.split_whitespace().next());
    let found: BTreeSet<&str> = names.filter(|name| RUNTIMES.contains(name)).collect();
    let fix =
        |runtime: &str| format!("{name} reaches {runtime}: keep the runtime in actors or net");
    found.into_iter().map(|runtime| fault("Cargo.toml", 1, fix(runtime))).collect()
}

fn check_crate_manifest(path: &str, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    // A stand-in for another's crate is not in the workspace and forbids unsafe code by itself.
    let stand_in = text.contains("\n[workspace]\n") && text.contains("unsafe_code = \"forbid\"");
    if !text.contains("[lints]\nworkspace = true") && !stand_in {
        faults.push(fault(path, 1, "add `[lints] workspace = true`"));
    }
    if text.contains("[lib]") && !text.contains("doctest = false") {
        faults.push(fault(path, 1, "add `doctest = false` to [lib]"));
    }
    faults
}

fn check_clippy_file(path: &str, text: &str) -> Vec<Fault> {
    if text.contains("too-many-lines-threshold = 70") {
        return Vec::new();
    }
    let fix = "a crate's clippy.toml replaces the root's: repeat `too-many-lines-threshold = 70`";
    vec![fault(path, 1, fix)]
}

/// The licences that deny.toml allows, in its order.
fn allowed_licenses(deny: &str) -> Vec<String> {
    let section = deny.split("[licenses]").nth(1).unwrap_or_default();
    let list = section.split("allow = [").nth(1).and_then(|rest| rest.split(']').next());
    let strings = list.unwrap_or_default().split('"').skip(1).step_by(2);
    strings.map(str::to_owned).collect()
}

/// An SPDX expression holds if some `OR` side has all its `AND` terms allowed.
fn license_allowed(expression: &str, allowed: &[String]) -> bool {
    let mut text = expression.replace('/', " OR ");
    // The innermost bracket first, replaced by what it is worth.
    while let Some(close) = text.find(')') {
        let open = text[..close].rfind('(').unwrap_or(0);
        let worth = license_allowed(text[open..close].trim_start_matches('('), allowed);
        let word = if worth { "(yes" } else { "(no" }.trim_start_matches('(');
        text.replace_range(open..=close, word);
    }
    let term = |name: &str| name == "yes" || allowed.iter().any(|license| license == name);
    let later = |name: &str| term(name.trim().trim_end_matches('+'));
    text.split(" OR ").any(|side| side.split(" AND ").all(later))
}

fn check_licenses(metadata: &Value, allowed: &[String]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let license = package["license"].as_str().unwrap_or("none");
        if !package["source"].is_null() && !license_allowed(license, allowed) {
            let fix = format!("{name} has licence {license}: allow it there, or drop the crate");
            faults.push(fault("deny.toml", 1, fix));
        }
    }
    faults
}

fn metadata() -> Value {
    let text = run(env!("CARGO"), &["metadata", "--format-version=1", "--offline", "--locked"]);
    serde_json::from_str(&text).expect("cargo prints JSON")
}

// ---- the checks on the real tree ----

#[test]
fn root_and_tests_hold_only_what_belongs_there() {
    let files = tree();
    let paths = || files.iter().map(|file| file.path.as_str());
    let mut faults = check_root(paths());
    faults.extend(check_tests_listing(paths()));
    assert_tidy(&faults);
}

#[test]
fn names_say_what_a_file_owns() {
    assert_tidy(&tree().iter().flat_map(|file| check_name(&file.path)).collect::<Vec<_>>());
}

#[test]
fn nothing_strays_into_the_repository() {
    assert_tidy(&tree().iter().flat_map(check_stray).collect::<Vec<_>>());
}

#[test]
fn every_source_opens_with_what_it_owns() {
    let mut faults = each(&[".rs"], check_head);
    let tables = |path: &str, text: &str| match path.contains("/schemas/") {
        true => check_schema_head(path, text),
        false => Vec::new(),
    };
    faults.extend(each(&[".txt", ".schema", ".tbl"], tables));
    assert_tidy(&faults);
}

#[test]
fn lines_and_files_fit() {
    let mut faults = each(&[".rs", ".py", ".sh", ".java"], check_width);
    faults.extend(each(&[".rs"], check_length));
    let lines = |file: File| file.text.map_or(0, |text| text.lines().count());
    let sources = tree().into_iter().filter(|file| file.path.ends_with(".rs"));
    faults.extend(check_length_spread(&sources.map(lines).collect::<Vec<_>>()));
    let main = std::fs::read_to_string(root().join("src/main.rs")).unwrap();
    if main.lines().count() > MAIN_LINES_MAX {
        faults.push(fault("src/main.rs", 1, "main parses, starts and waits: move the rest"));
    }
    assert_tidy(&faults);
}

#[test]
fn nothing_is_left_over() {
    let mut faults = each(&[".rs", ".py", ".sh", ".java", ".toml", ".md"], check_leftovers);
    faults.extend(each(&[".rs", ".java"], check_commented_code));
    assert_tidy(&faults);
}

#[test]
fn pure_code_is_pure() {
    let mut faults = each(&[".rs"], check_pure);
    faults.extend(each(&[".rs"], check_decide));
    assert_tidy(&faults);
}

#[test]
fn actors_are_named_alike() {
    let files = tree();
    let sources = files.iter().filter(|file| file.path.starts_with("actors/"));
    let texts = sources.filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)));
    assert_tidy(&check_actor_names(&texts.collect()));
}

#[test]
fn readme_holds_what_it_says() {
    let Ok(text) = std::fs::read_to_string(root().join("README.md")) else { return };
    assert_tidy(&check_readme(&text, |path| root().join(path).exists()));
}

#[test]
fn dependencies_point_one_way() {
    assert_tidy(&check_direction(&our_dependencies(&metadata())));
}

#[test]
fn pure_crates_reach_no_runtime() {
    let mut faults = Vec::new();
    for name in WITHOUT_RUNTIME {
        let package = format!("heliograph-{name}");
        let common = ["tree", "-e", "normal", "--prefix", "none", "--offline", "--locked", "-p"];
        let tree = run(env!("CARGO"), &[&common[..], &[package.as_str()]].concat());
        faults.extend(check_runtime_free(name, &tree));
    }
    assert_tidy(&faults);
}

/// A setting that is accepted and read by nobody promises what it does not do.
fn check_settings_are_read(path: &str, text: &str, readers: &str) -> Vec<Fault> {
    let field = regex(r"^    pub (\w+): ");
    let unread = |name: &str| {
        !UNREAD_SETTINGS.contains(&name) && !regex(&format!(r"\.{name}\b")).is_match(readers)
    };
    numbered(text)
        .filter_map(|(line, code)| Some((line, field.captures(code)?.get(1)?.as_str())))
        .filter(|(_, name)| unread(name))
        .map(|(line, name)| {
            let fix = format!("nothing reads {name}: act on it, or mark its key `not_built`");
            fault(path, line, fix)
        })
        .collect()
}

#[test]
fn settings_are_acted_on() {
    let files = tree();
    let acting = |path: &str| path.ends_with(".rs") && !path.starts_with("config/");
    let sources = files.iter().filter(|file| acting(&file.path) && !is_test_path(&file.path));
    let readers: String =
        sources.filter_map(|file| file.text.as_deref().map(without_tests)).collect();
    assert_tidy(&each(&[".rs"], |path, text| match SETTINGS.contains(&path) {
        true => check_settings_are_read(path, text, &readers),
        false => Vec::new(),
    }));
}

#[test]
fn a_setting_that_nobody_reads_is_found() {
    let text = "pub struct Config {\n    pub told: i32,\n    pub ignored: i32,\n}\n";
    let faults = check_settings_are_read("config/broker.rs", text, "f(config.told)");
    assert_eq!(faults.len(), 1, "{}", faults[0]);
    assert_eq!(faults[0].line, 3);
}

fn check_script(path: &str, text: &str) -> Vec<Fault> {
    if text.starts_with("#!/usr/bin/env bash\n#") && text.contains("\nset -") {
        return Vec::new();
    }
    vec![fault(path, 1, "open with `#!/usr/bin/env bash`, say what it does, and `set -e`")]
}

#[test]
fn scripts_say_what_they_do() {
    assert_tidy(&each(&[".sh", ".ci/run"], check_script));
}

#[test]
fn manifests_share_the_lints() {
    let mut faults = each(&["Cargo.toml"], check_crate_manifest);
    faults.extend(each(&["clippy.toml"], check_clippy_file));
    assert_tidy(&faults);
}

#[test]
fn licenses_are_allowed() {
    let Ok(deny) = std::fs::read_to_string(root().join("deny.toml")) else { return };
    assert_tidy(&check_licenses(&metadata(), &allowed_licenses(&deny)));
}

/// A report, not a gate: where few assertions stand.
#[test]
fn assertions_are_counted() {
    for folder in ["src/log/", "src/mirror/", "raft/"] {
        let (mut lines, mut asserts) = (0, 0);
        for file in tree().iter().filter(|file| file.path.starts_with(folder)) {
            let text = file.text.as_deref().unwrap_or_default();
            if file.path.ends_with(".rs") {
                lines += text.lines().count();
                asserts += text.matches("assert").count();
            }
        }
        println!("{folder}: {asserts} assertions in {lines} lines");
    }
}

// ---- the checks on small inputs ----

fn fixes(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(Fault::to_string).collect()
}

#[test]
fn a_stranger_in_the_root_is_found() {
    let paths = ["src/main.rs", ".ci/run", "docs/a.md", "README.md", "Makefile"];
    let faults = check_root(paths.into_iter());
    let expected = "the root is fixed: move this into a folder";
    assert_eq!(fixes(&faults), [format!("Makefile:1: {expected}"), format!("docs:1: {expected}")]);
    let tests = ["tests/it/main.rs", "tests/tidy.rs", "tests/golden.rs"];
    assert_eq!(check_tests_listing(tests.into_iter()).len(), 1);
}

#[test]
fn drawers_and_mod_files_are_found() {
    for path in ["src/log/utils.rs", "actors/common/a.rs", "raft/mod.rs", "tests/it/helpers.rs"] {
        assert_eq!(check_name(path).len(), 1, "{path}");
    }
    assert!(check_name("src/protocol/common_prefix.rs").is_empty());
}

#[test]
fn strays_are_found() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: Some(text.to_owned()),
        bytes: text.len(),
    };
    assert_eq!(check_stray(&file("tests/interop/Admin.class", "")).len(), 1);
    assert_eq!(check_stray(&file("a.sh", concat!("cd /ro", "ot/x"))).len(), 1);
    assert_eq!(check_stray(&file("a.sh", "ls src/root/x https://a.example/work/y")).len(), 0);
    assert_eq!(check_stray(&File { bytes: FILE_BYTES_MAX + 1, ..file("a.bin", "") }).len(), 1);
}

#[test]
fn heads_are_wanted() {
    assert_eq!(check_head("a.rs", "use std::fs;\n").len(), 1);
    assert!(check_head("a.rs", "//! Owns a.\n").is_empty());
    assert_eq!(check_schema_head("a.txt", "request Fetch\n").len(), 1);
    assert!(check_schema_head("a.txt", "# Fetch 4-18: KIP-74\n").is_empty());
}

#[test]
fn widths_and_lengths_are_measured() {
    let wide = "x".repeat(LINE_COLUMNS_MAX + 1);
    assert_eq!(check_width("a.rs", &format!("ok\n{wide}\n"))[0].line, 2);
    assert!(check_width("a.rs", &format!("// https://{wide}")).is_empty());

    let code = "fn a() {}\n".repeat(PRODUCTION_LINES_MAX);
    let tests =
        |count: usize| format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    a();\n".repeat(count));
    assert!(check_length("a.rs", &format!("{code}{}", tests(100))).is_empty());
    assert_eq!(check_length("a.rs", &format!("{code}{}", tests(300))).len(), 1);
    assert_eq!(check_length("a.rs", &format!("{code}fn b() {{}}\n")).len(), 1);
    assert!(check_length("a/b_tests.rs", &format!("{code}fn b() {{}}\n")).is_empty());
    assert_eq!(check_length("tests/it/a.rs", &"a\n".repeat(FILE_LINES_MAX + 1)).len(), 1);
    assert!(check_length_spread(&[10; 30]).is_empty());
    assert!(check_length_spread(&[700; 3]).is_empty());
    assert_eq!(check_length_spread(&[700; 30]).len(), 2);
}

#[test]
fn leftovers_are_found() {
    for line in [concat!("// FIX", "ME later"), concat!("// TO", "DO: x"), concat!("to", "do!()")]
    {
        assert_eq!(check_leftovers("a.rs", line).len(), 1, "{line}");
    }
    assert!(check_leftovers("a.rs", concat!("// TO", "DO(#12): x")).is_empty());
    assert!(check_leftovers("a.rs", concat!("mastodo", "n!()")).is_empty());
}

#[test]
fn commented_code_is_found_and_prose_is_not() {
    for line in [
        "    // let x = 1;",
        "// fn a() {",
        "// }",
        "    // self.reply(3)?;",
        "// if a {",
        "// x.y = 3;",
    ] {
        assert_eq!(check_commented_code("a.rs", line).len(), 1, "{line}");
    }
    for line in [
        "// The leader answers first; the follower waits.",
        "/// let x = 1;",
        "// for each partition: its log end",
        "// if it is empty, nothing is cut",
        "let a = 1; // let it be",
    ] {
        assert!(check_commented_code("a.rs", line).is_empty(), "{line}");
    }
}

#[test]
fn impure_code_is_found_outside_of_tests() {
    let text = "//! A.\nfn a() { Instant::now(); }\n#[cfg(test)]\nmod tests {\n  x.await\n}\n";
    assert_eq!(check_pure("src/mirror/a.rs", text).len(), 1);
    assert!(check_pure("actors/a.rs", text).is_empty());
    assert!(check_pure("raft/consensus.rs", text).is_empty());
    assert_eq!(check_pure("raft/topics.rs", &format!("fn decide_a(&self) {{}}\n{text}")).len(), 1);
    assert_eq!(check_decide("a.rs", "fn decide_a(\n    &mut self, b: u8)").len(), 1);
    assert!(check_decide("a.rs", "fn decide_a(&self, b: &mut u8)").is_empty());
}

#[test]
fn actor_names_are_checked() {
    let whole = "impl Actor for Log {}\nenum LogMsg {}\nstruct LogArgs;\nstruct LogState;";
    let files =
        BTreeMap::from([("actors/log.rs", whole), ("actors/log/x.rs", "struct LogHandle;")]);
    assert!(check_actor_names(&files).is_empty());
    assert!(lies_in_its_file("actors/controller/leader.rs", "ControllerLeader"));
    let outside = ("actors/x.rs", "send(LogMsg::Stop)");
    let files = BTreeMap::from([("actors/other.rs", whole), outside]);
    let fixes = fixes(&check_actor_names(&files));
    let expected = [
        "actors/other.rs:1: actor Log belongs in log.rs",
        "actors/other.rs:1: actor Log has no LogHandle: name it so",
    ];
    assert_eq!(fixes, expected);
    assert_eq!(snake_case("MirrorFetcher"), "mirror_fetcher");
}

#[test]
fn readme_paths_are_found() {
    let text = "See `src/a.rs::on_x` and [b](raft/), not `a/b/c` or `https://x.example/y.rs`.\n\
                ```\nsrc/main.rs   CRATE heliograph\ncargo run --release -- demo\n```\n";
    let found: Vec<String> = readme_paths(text).into_iter().map(|(_, path)| path).collect();
    assert_eq!(found, ["src/a.rs", "raft/", "src/main.rs"]);
    let faults = check_readme(&format!("{text}bash scripts/check.sh"), |path| path == "raft/");
    assert_eq!(faults.len(), 2, "{:?}", fixes(&faults));
}

#[test]
fn wrong_dependencies_are_found() {
    let edge = |from: &str, to: &str, normal| (from.to_owned(), to.to_owned(), normal);
    let fine = [
        edge("log", "heliograph-protocol", true),
        edge("protocol", "heliograph-log", false),
        edge("actors", "ractor", true),
    ];
    assert!(check_direction(&fine).is_empty());
    let wrong = [
        edge("protocol", "heliograph-log", true),
        edge("log", "ractor", true),
        edge("heliograph", "sled", false),
        edge("newcomer", "heliograph-protocol", true),
    ];
    assert_eq!(check_direction(&wrong).len(), 4);
    assert_eq!(check_runtime_free("log", "log v0.1.0\ntokio v1.54.0\ntokio-util v0.7\n").len(), 1);
}

#[test]
fn manifests_and_licenses_are_checked() {
    assert_eq!(check_crate_manifest("a/Cargo.toml", "[lib]\nname = \"a\"\n").len(), 2);
    let stand_in = "[lints.rust]\nunsafe_code = \"forbid\"\n\n[workspace]\n";
    assert!(check_crate_manifest("a/Cargo.toml", stand_in).is_empty());
    assert_eq!(check_script("a.sh", "#!/bin/sh\nls\n").len(), 1);
    assert!(check_script("a.sh", "#!/usr/bin/env bash\n# Lists.\nset -e\n").is_empty());
    assert_eq!(check_clippy_file("a/clippy.toml", "disallowed-methods = []").len(), 1);
    let allowed = allowed_licenses("[licenses]\nallow = [\n  \"MIT\",\n  \"ISC\",\n]\n");
    assert_eq!(allowed, ["MIT", "ISC"]);
    for fine in ["MIT", "GPL-3.0 OR MIT", "Apache-2.0/MIT", "ISC+", "(GPL-3.0 OR ISC) AND MIT"] {
        assert!(license_allowed(fine, &allowed), "{fine}");
    }
    for wrong in ["GPL-3.0", "MIT AND GPL-3.0", "(GPL-3.0 OR BSD) AND MIT", "none"] {
        assert!(!license_allowed(wrong, &allowed), "{wrong}");
    }
}

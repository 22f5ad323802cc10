//! Golden files of this crate's tests: compared, or written anew with `UPDATE_GOLDEN=1`. Owns the
//! comparison; never judges what is in them.

use std::path::PathBuf;

/// Where the golden files are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testscripts")
}

/// Compares `actual` with the golden file, or writes it.
pub(crate) fn check(file: &str, actual: &str) {
    let path = folder().join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).expect("the golden file is writable");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs; read the difference, then run with UPDATE_GOLDEN=1\n\
         --- expected\n{expected}\n--- actual\n{actual}",
        path.display()
    );
}

/// The scripts: every `.script` file, by name.
pub(crate) fn scripts() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder of the golden files exists")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".script"))
        .collect();
    names.sort();
    names
}

/// Runs a script: comments and commands stay, what each command prints is written below it.
pub(crate) fn run(name: &str, mut command: impl FnMut(&str) -> String) {
    let text = std::fs::read_to_string(folder().join(name)).expect("the script is readable");
    let mut out = String::new();
    for line in text.lines() {
        if line.starts_with('#') || line.is_empty() {
            out.push_str(line);
            out.push('\n');
        } else if let Some(words) = line.strip_prefix("> ") {
            out.push_str(line);
            out.push('\n');
            out.push_str(&command(words));
        }
    }
    check(name, &out);
}

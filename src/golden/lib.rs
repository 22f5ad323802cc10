//! Golden files of the other crates' tests: compared, or written anew with `UPDATE_GOLDEN=1`. Owns
//! the comparison and the form of a script; never judges what is in them. Only tests depend on it.

#![expect(
    clippy::missing_panics_doc,
    reason = "panicking is how a comparison fails the test it stands in"
)]

use std::path::{Path, PathBuf};

/// The golden files of one crate.
#[derive(Clone, Copy, Debug)]
pub struct Golden {
    crate_folder: &'static str,
}

impl Golden {
    /// Those in `testscripts` of the crate in that folder: `env!("CARGO_MANIFEST_DIR")`.
    #[must_use]
    pub const fn of(crate_folder: &'static str) -> Golden {
        Golden { crate_folder }
    }

    /// Where the files are.
    #[must_use]
    pub fn folder(self) -> PathBuf {
        Path::new(self.crate_folder).join("testscripts")
    }

    /// Compares `actual` with the golden file, or writes it.
    pub fn check(self, file: &str, actual: &str) {
        let path = self.folder().join(file);
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
    #[must_use]
    pub fn scripts(self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.folder())
            .expect("the folder of the golden files exists")
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.ends_with(".script"))
            .collect();
        names.sort();
        names
    }

    /// Runs a script: comments and commands stay, what each command prints is written below it.
    pub fn run(self, name: &str, mut command: impl FnMut(&str) -> String) {
        let path = self.folder().join(name);
        let text = std::fs::read_to_string(path).expect("the script is readable");
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
        self.check(name, &out);
    }
}

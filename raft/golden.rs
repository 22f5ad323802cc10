//! Golden files of this crate's tests: compared, or written anew with `UPDATE_GOLDEN=1`.

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

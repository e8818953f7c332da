//! Parts of docs pages that benchmarks generate.

use std::{fs, path::PathBuf};

/// The page with the results.
pub const PAGE: &str = "docs/performance.md";

/// Replaces the text between the markers of `part`.
pub fn refresh(page: &str, part: &str, text: &str) {
    let path = at(page);
    let page = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {part}: begin -->\n"), format!("<!-- {part}: end -->"));
    let (before, rest) =
        page.split_once(&begin).unwrap_or_else(|| panic!("no {begin} in {}", path.display()));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end} in {}", path.display()));
    fs::write(&path, format!("{before}{begin}{}\n{end}{after}", text.trim_end())).unwrap();
}

/// Returns a path in the repository.
pub fn at(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the folder for results.
pub fn results() -> PathBuf {
    let folder = at("target/bench");
    fs::create_dir_all(&folder).unwrap();
    folder
}

//! Real blocks and receipts, as nodes served them, from a folder beside the repository. If it does not exist, tests
//! print that they are left out.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use serde_json::Value;

/// A real block, with its receipts if the folder has them.
pub struct Real {
    pub name: String,
    pub block: Bytes,
    pub receipts: Option<Bytes>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data")
}

/// Prints on standard error that a test has no data.
pub fn left_out(test: &str, path: &Path) {
    let message = format!("LEFT OUT: {test}: {} does not exist\n", path.display());
    // Does not use `eprintln!`, because the test harness hides its output if the test passes.
    let _ = io::stderr().write_all(message.as_bytes());
}

/// Returns geth's answers by block, or none, with a message on standard error, if the file is absent.
pub fn recorded(test: &str) -> Vec<Value> {
    let path = folder().join("raw/geth-dev.json");
    let Ok(recorded) = fs::read(&path) else {
        left_out(test, &path);
        return Vec::new();
    };
    serde_json::from_slice(&recorded).unwrap()
}

/// Returns blocks and receipts recorded from geth; see [`recorded`].
pub fn raw(test: &str) -> Vec<Real> {
    let text = |value: &Value| Bytes::from(value.to_string());
    recorded(test)
        .iter()
        .map(|at| Real {
            name: format!("geth {}", at["block"]["number"]),
            block: text(&at["block"]),
            receipts: Some(text(&at["receipts"])),
        })
        .collect()
}

/// Returns all blocks in order, or none, with a message on standard error, if the folder does not exist.
pub fn real(test: &str) -> Vec<Real> {
    let Ok(files) = fs::read_dir(folder()) else {
        left_out(test, &folder());
        return Vec::new();
    };
    let mut names: Vec<_> = files
        .filter_map(|file| {
            file.unwrap().file_name().into_string().unwrap().strip_suffix(".block.json").map(str::to_owned)
        })
        .collect();
    names.sort();
    assert!(!names.is_empty(), "no blocks in {}", folder().display());
    let read =
        |name: &str, of: &str| fs::read(folder().join(format!("{name}.{of}.json"))).ok().map(Bytes::from);
    names
        .into_iter()
        .map(|name| Real { block: read(&name, "block").unwrap(), receipts: read(&name, "receipts"), name })
        .collect()
}

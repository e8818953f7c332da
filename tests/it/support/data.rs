//! Real blocks and receipts, as nodes served them: `tests/data`, whose README names the sources.

use std::{
    fs,
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Returns geth's answers by block.
pub fn recorded() -> Vec<Value> {
    serde_json::from_slice(&fs::read(folder().join("raw/geth-dev.json")).unwrap()).unwrap()
}

/// Returns blocks and receipts recorded from geth; see [`recorded`].
pub fn raw() -> Vec<Real> {
    let text = |value: &Value| Bytes::from(value.to_string());
    recorded()
        .iter()
        .map(|at| Real {
            name: format!("geth {}", at["block"]["number"]),
            block: text(&at["block"]),
            receipts: Some(text(&at["receipts"])),
        })
        .collect()
}

/// Returns all blocks of Ethereum's chains, in order of their names.
pub fn real() -> Vec<Real> {
    let mut names: Vec<_> = fs::read_dir(folder())
        .unwrap()
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

/// Returns an answer of a node of another chain.
pub fn other_chain(name: &str) -> Value {
    let path = folder().join(format!("other-chains/{name}.json"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

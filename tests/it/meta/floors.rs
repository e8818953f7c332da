//! A module imports only from floors below its own.

use std::{collections::BTreeMap, fs, path::Path};

/// Floors from the bottom up, as the doc of `lib.rs` draws them.
fn floors() -> BTreeMap<String, usize> {
    let lib = fs::read_to_string(source().join("lib.rs")).unwrap();
    let drawing: Vec<_> = lib
        .lines()
        .skip_while(|line| !line.contains("```text"))
        .skip(1)
        .take_while(|line| !line.contains("```"))
        .filter_map(|line| line.trim_start_matches("//!").split_whitespace().next())
        .collect();
    drawing.iter().rev().enumerate().map(|(floor, name)| ((*name).to_owned(), floor)).collect()
}

fn source() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The modules that a file names through `crate::`, in `use` trees and in paths.
fn imports(text: &str) -> Vec<String> {
    let code: String =
        text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(tree) = rest.strip_prefix('{') {
            names.extend(top_level(tree));
        } else {
            names.extend(identifier(rest));
        }
    }
    names
}

/// The names that begin the branches of a `use` tree: depth 0 up to its closing brace.
fn top_level(tree: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut depth, mut fresh) = (0, true);
    for (at, character) in tree.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if fresh && depth == 0 && !character.is_whitespace() => {
                names.extend(identifier(&tree[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

fn identifier(text: &str) -> Option<String> {
    let name: String =
        text.chars().take_while(|character| character.is_alphanumeric() || *character == '_').collect();
    (!name.is_empty()).then_some(name)
}

#[test]
fn modules_import_from_below() {
    let floors = floors();
    let mut seen = 0;
    for file in files(source()) {
        let relative = file.strip_prefix(source()).unwrap();
        let module = relative.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if module == "lib" || module == "main" {
            continue;
        }
        let floor = floors.get(&module).unwrap_or_else(|| panic!("{module} is not in the drawing of lib.rs"));
        for import in imports(&fs::read_to_string(&file).unwrap()) {
            let below = floors
                .get(&import)
                .unwrap_or_else(|| panic!("{relative:?} imports an unknown crate::{import}"));
            assert!(
                below < floor || import == module,
                "{relative:?} imports crate::{import}, which is above it"
            );
            seen += 1;
        }
    }
    assert!(seen > 50, "only {seen} imports found: is the reader broken?");
}

#[test]
fn the_reader_sees_what_is_imported() {
    let text =
        "use crate::{\n  jsonrpc::{Answer, Call},\n eth::X, // crate::cli\n};\nfn f() -> crate::http::Y {}";
    assert_eq!(imports(text), ["jsonrpc", "eth", "http"]);
}

//! The layering of `src`: modules, subfolders and files import only from floors below their own.
//!
//! A module draws its floors like `lib.rs`: under the heading `# Floors` of its documentation, in a block of
//! text, one line for each file or subfolder, the topmost first. `mod` lines, `pub use` and `#[cfg(test)]` code
//! do not count as imports, and importing a re-exported name imports the file that defines it.

mod code;
mod graph;
mod tree;

use std::{collections::BTreeMap, fs, path::Path};

use self::tree::{Tree, drawing};

fn source() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

/// Returns the floors in the doc of `lib.rs`, numbered from the bottom up.
fn floors() -> BTreeMap<String, usize> {
    let lib = fs::read_to_string(source().join("lib.rs")).unwrap();
    drawing(&lib).into_iter().rev().zip(0..).collect()
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

/// Returns the modules that a file names through `crate::`, in `use` trees and in paths.
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

/// Returns the first name of each branch of a `use` tree, up to its closing brace.
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
fn imports_are_found_in_use_trees_and_paths() {
    let text =
        "use crate::{\n  jsonrpc::{Answer, Call},\n eth::X, // crate::cli\n};\nfn f() -> crate::http::Y {}";
    assert_eq!(imports(text), ["jsonrpc", "eth", "http"]);
}

/// Returns the types with methods of their own in `text`, which is Rust code as rustfmt writes it.
fn types_with_methods(text: &str) -> Vec<String> {
    let mut types = Vec::new();
    for (at, _) in text.match_indices("\nimpl") {
        let head = text[at + "\nimpl".len()..].split('{').next().unwrap_or_default();
        if !head.split_whitespace().any(|word| word == "for") {
            let (mut depth, mut name) = (0, String::new());
            for character in head.chars() {
                match character {
                    '<' => depth += 1,
                    '>' => depth -= 1,
                    ' ' | '\n' if depth == 0 && !name.is_empty() => break,
                    _ if depth == 0 && !character.is_whitespace() => name.push(character),
                    _ => {}
                }
            }
            types.push(name);
        }
    }
    types
}

#[test]
fn types_with_methods_are_found() {
    let text =
        "\nimpl A {\nimpl<T: Fn(u8)> B<T>\nwhere\n    T: Copy,\n{\nimpl C for D {\nimpl<T>\n    E for F<T> {";
    assert_eq!(types_with_methods(text), ["A", "B"]);
}

#[test]
fn types_have_their_methods_in_their_own_file() {
    let mut elsewhere = Vec::new();
    let is_test = |file: &Path| file.components().any(|part| part.as_os_str() == "tests");
    for file in files(source()).into_iter().filter(|file| !is_test(file.strip_prefix(source()).unwrap())) {
        let text = fs::read_to_string(&file).unwrap();
        let is_defined = |name: &str| {
            ["struct", "enum"].iter().any(|kind| {
                text.split(&format!("{kind} {name}"))
                    .skip(1)
                    .any(|rest| !rest.starts_with(char::is_alphanumeric))
            })
        };
        let foreign = types_with_methods(&text).into_iter().filter(|name| !is_defined(name));
        elsewhere.extend(foreign.map(|name| format!("{}: {name}", file.display())));
    }
    assert_eq!(elsewhere, Vec::<String>::new());
}

#[test]
fn subfolders_import_from_below() {
    let tree = Tree::read(source());
    let imports = tree.imports().len();
    assert!(imports > 500, "only {imports} imports found: is the reader broken?");
    let upward = graph::upward(&tree);
    assert!(upward.is_empty(), "{} imports or drawings are wrong:\n{}", upward.len(), upward.join("\n"));
}

#[test]
fn files_import_in_no_cycle() {
    let cycles = graph::cycles(&Tree::read(source()));
    assert!(cycles.is_empty(), "{} import cycles:\n{}", cycles.len(), cycles.join("\n"));
}

/// Returns a tree of these files.
fn tree(files: &[(&str, &str)]) -> Tree {
    Tree::new(files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())))
}

/// Returns the imports of a file: the imported file and the path that names it.
fn imports_of(tree: &Tree, module: &str) -> Vec<(String, String)> {
    let imports = tree.imports().into_iter().filter(|import| import.from == module);
    imports.map(|import| (import.to, import.path)).collect()
}

#[test]
fn cycle_through_a_reexport_is_found() {
    let tree = tree(&[
        ("lib.rs", "pub mod a;"),
        ("a/mod.rs", "mod one;\nmod three;\nmod two;\npub use self::{one::One, three::*};"),
        ("a/one.rs", "use super::two::Two;\npub struct One;"),
        ("a/two.rs", "use crate::a::{One as First, Three};\npub struct Two;"),
        ("a/three.rs", "pub struct Three;"),
    ]);
    let cycles = graph::cycles(&tree);
    assert_eq!(
        cycles,
        [
            "2 files import each other: a/one.rs, a/two.rs\n  a/one.rs → a/two.rs: super::two::Two\n  a/two.rs → a/one.rs: crate::a::One"
        ]
    );
}

#[test]
fn cycle_through_test_code_is_ignored() {
    let tree = tree(&[
        ("a.rs", "mod one;\nmod two;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod fixture;"),
        ("a/one.rs", "use super::two::Two;\npub struct One;"),
        (
            "a/two.rs",
            "pub struct Two {\n    #[cfg(test)]\n    one: super::one::One,\n    other: u8,\n}\n\
             #[cfg(test)]\nuse super::one::{One, Other};\n\
             #[cfg(test)]\n#[allow(unused)]\npub(crate) fn f<A, B>() -> crate::a::one::One { One {} }\n\
             #[cfg(test)]\nmod tests {\n    use super::super::one::One;\n    fn f() { let _ = \"}\"; }\n}",
        ),
        ("a/tests.rs", "use super::one::One;"),
        ("a/fixture/mod.rs", "pub use super::one::One;"),
    ]);
    assert_eq!(graph::cycles(&tree), [""; 0]);
    assert_eq!(imports_of(&tree, "a::two"), []);
    assert_eq!(tree.children("a").into_iter().collect::<Vec<_>>(), ["one", "two"]);
}

#[test]
fn paths_outside_use_declarations_are_imports() {
    let tree = tree(&[
        ("a/mod.rs", "mod one;\nmod two;\nfn f() { two::g() }"),
        (
            "a/one.rs",
            "// super::two::Comment\nuse std::fmt;\nuse crate::b;\n#[serde(with = \"super::two\")]\n\
             pub(in crate::a) struct One<'a>(&'a str);\nconst C: char = '\"';\n\
             fn f() { fmt::g(); b::deep::h(r#\"crate::a::two::Text\"#); ::b::other::C }\n\
             mod inner { fn f() { super::super::two::g() } }",
        ),
        ("a/two.rs", "pub fn g() {}"),
        ("b/mod.rs", "pub mod deep;\npub mod other;"),
        ("b/deep.rs", "pub fn h() {}"),
        ("b/other.rs", "pub const C: u8 = 0;"),
    ]);
    assert_eq!(imports_of(&tree, "a"), [("a::two".into(), "two::g".into())]);
    let expected = [
        ("a::two", "super::super::two::g"),
        ("a::two", "super::two"),
        ("b", "crate::b"),
        ("b::deep", "b::deep::h"),
    ];
    assert_eq!(imports_of(&tree, "a::one"), expected.map(|(to, path)| (to.into(), path.into())));
}

#[test]
fn upward_import_and_wrong_drawing_are_found() {
    let drawing = "//! Words.\n//!\n//! # Floors\n//! ```text\n//! top     first\n//!         goes on\n\
                   //! bottom  second\n//! gone    none\n//! ```\n\nmod bottom;\nmod new;\nmod top;\nfn f() {}";
    let tree = tree(&[
        ("a/mod.rs", drawing),
        ("a/top.rs", "use super::{bottom::deep::Deep, f};\npub struct Top;"),
        ("a/bottom/mod.rs", "mod deep;"),
        ("a/bottom/deep.rs", "use crate::a::top::Top;\npub struct Deep;"),
        ("a/new.rs", ""),
    ]);
    assert_eq!(
        graph::upward(&tree),
        [
            "a/mod.rs does not draw new",
            "a/mod.rs draws gone, which does not exist",
            "a/bottom/deep.rs imports crate::a::top::Top (a/top.rs), but a/mod.rs draws top above bottom",
        ]
    );
}

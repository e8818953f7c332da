//! The docs match the program: links have targets, and named keys, metrics, variables, commands and configurations are
//! valid.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use holdfast::config::Sources;

use crate::support::program::{file, holdfast, output, text};

/// Environment variables that are not configuration keys.
const BESIDE: [&str; 6] = ["CONFIG", "UPSTREAM_URL", "ADMIN_TOKEN", "KEY", "IMAGE", "SEED"];

/// A valid URL at which no server listens.
const NOWHERE: &str = "\"http://127.0.0.1:1\"";

/// A Markdown page.
struct Page {
    name: String,
    path: PathBuf,
    text: String,
}

/// A code block, with the language after its first fence.
struct Block<'a> {
    kind: &'a str,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<Page> {
    let folders = ["", "docs", "docs/decisions"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    // The changelog names keys and metrics that are gone.
    let mut paths: Vec<_> = pages.filter(|path| !path.ends_with("CHANGELOG.md")).collect();
    paths.sort();
    assert!(paths.len() >= 18, "{paths:?}");
    let page = |path: PathBuf| Page {
        name: path.strip_prefix(root()).unwrap().display().to_string(),
        text: fs::read_to_string(&path).unwrap(),
        path,
    };
    paths.into_iter().map(page).collect()
}

// === impl Page ===

impl Page {
    /// Returns the lines outside code blocks.
    fn prose(&self) -> Vec<&str> {
        let mut in_block = false;
        let mut lines = Vec::new();
        for line in self.text.lines() {
            if line.starts_with("```") {
                in_block = !in_block;
            } else if !in_block {
                lines.push(line);
            }
        }
        assert!(!in_block, "{}: a block of code has no end", self.name);
        lines
    }

    fn blocks(&self, kind: &str) -> Vec<String> {
        let mut blocks: Vec<Block<'_>> = Vec::new();
        let mut in_block = false;
        for line in self.text.lines() {
            match line.strip_prefix("```") {
                Some(_) if in_block => in_block = false,
                Some(kind) => {
                    in_block = true;
                    blocks.push(Block { kind, text: String::new() });
                }
                None if in_block => {
                    let block = blocks.last_mut().unwrap();
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                None => {}
            }
        }
        blocks.into_iter().filter(|block| block.kind == kind).map(|block| block.text).collect()
    }

    /// Returns the texts between backticks.
    fn code(&self) -> Vec<&str> {
        let lines = self.prose().into_iter();
        lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
    }

    /// Returns the targets of all links.
    fn links(&self) -> Vec<String> {
        let mut links = Vec::new();
        for line in self.prose() {
            // Removes code, which contains no links; the text of a link may be code.
            let plain: String = line.split('`').step_by(2).collect();
            let targets = plain.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            links.extend(targets.map(str::to_owned));
        }
        links
    }

    /// Returns the anchors of all headings.
    fn anchors(&self) -> BTreeSet<String> {
        let mut seen = BTreeMap::new();
        let headings = self.prose().into_iter().filter(|line| line.starts_with('#'));
        let anchors = headings.map(|line| {
            let anchor = anchor(line.trim_start_matches('#').trim());
            let before = seen.entry(anchor.clone()).or_insert(0);
            *before += 1;
            if *before == 1 { anchor } else { format!("{anchor}-{}", *before - 1) }
        });
        anchors.collect()
    }
}

/// Returns the anchor that GitHub derives from a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns all keys of `config/holdfast.toml` with the names of their tables, such as `http.keys.sha256`, and all
/// tables.
fn keys() -> BTreeSet<String> {
    let documented = fs::read_to_string(root().join("config/holdfast.toml")).unwrap();
    let (mut table, mut keys) = (String::new(), BTreeSet::new());
    for line in documented.lines() {
        let line = line.trim_start_matches("# ");
        if line.starts_with('[') {
            let name = line.trim_matches(['[', ']']);
            keys.insert(name.to_owned());
            table = format!("{name}.");
        } else if let Some((key, _)) = line.split_once(" = ")
            && is_key(key)
        {
            keys.insert(format!("{table}{key}"));
        }
    }
    assert!(keys.contains("upstream.endpoints.url") && keys.contains("http.keys.sha256"), "{keys:?}");
    keys
}

/// Returns whether the text has the form of a key.
fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
}

/// Appends the text of all Rust files in a folder.
fn source(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_link_has_a_target() {
    let pages = pages();
    let anchors: BTreeMap<_, _> =
        pages.iter().map(|page| (page.path.canonicalize().unwrap(), page.anchors())).collect();
    let mut seen = 0;
    for page in &pages {
        for link in page.links().iter().filter(|link| !link.contains("://")) {
            let (target, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let path = match target {
                "" => page.path.clone(),
                target => page.path.parent().unwrap().join(target),
            };
            let path = path.canonicalize().unwrap_or_else(|_| panic!("{}: there is no {link}", page.name));
            let is_there = anchor.is_empty() || anchors.get(&path).is_some_and(|all| all.contains(anchor));
            assert!(is_there, "{}: there is no heading for {link}", page.name);
            seen += 1;
        }
    }
    assert!(seen >= 20, "{seen}");
}

#[test]
fn every_named_key_exists() {
    let keys = keys();
    let tables: BTreeSet<_> =
        keys.iter().filter_map(|key| key.split_once('.')).map(|(table, _)| table).collect();
    let mut seen = BTreeSet::new();
    for page in pages() {
        for code in page.code() {
            let name = code.split(" = ").next().unwrap();
            let Some((table, rest)) = name.split_once('.') else { continue };
            if !tables.contains(table) || !(rest == "*" || rest.split('.').all(is_key)) {
                continue;
            }
            assert!(rest == "*" || keys.contains(name), "{}: {name} is no key", page.name);
            seen.insert(name.to_owned());
        }
    }
    assert!(seen.len() >= 40, "{seen:?}");
}

#[test]
fn every_named_metric_exists() {
    let mut all = String::new();
    source(&root().join("src"), &mut all);
    let mut seen = BTreeSet::new();
    for page in pages() {
        for code in page.code() {
            let Some(name) = code.split('{').next().unwrap().strip_prefix("holdfast_") else { continue };
            let endings = ["_total", "_bucket", "_sum", "_count", "_info"];
            let base = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
            assert!(all.contains(&format!("\"{base}\"")), "{}: there is no metric {code}", page.name);
            seen.insert(base.to_owned());
        }
    }
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn every_named_variable_exists() {
    let keys = keys();
    let mut seen = BTreeSet::new();
    for page in pages() {
        for (at, prefix) in page.text.match_indices("HOLDFAST_") {
            let rest = page.text[at + prefix.len()..].chars();
            let name: String = rest.take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            if name.is_empty() || BESIDE.contains(&name.as_str()) {
                continue;
            }
            let key = name.to_ascii_lowercase().replace("__", ".");
            assert!(keys.contains(&key), "{}: {prefix}{name} is no key", page.name);
            seen.insert(key);
        }
    }
    assert!(seen.len() >= 5, "{seen:?}");
}

#[test]
fn every_shown_configuration_loads() {
    let mut seen = 0;
    for page in pages() {
        for block in page.blocks("toml") {
            if cfg!(not(feature = "otlp")) && block.contains("otlp = ") {
                // A build without the feature refuses this key.
                continue;
            }
            let toml = without_secrets(&block);
            let loaded = Sources::none().with_file(Some(file("holdfast.toml", &toml))).load();
            if let Err(error) = loaded {
                panic!("{}: {error}\n{block}", page.name);
            }
            seen += 1;
        }
    }
    assert!(seen >= 9, "{seen}");
}

/// Replaces references to secrets by values.
fn without_secrets(toml: &str) -> String {
    let mut text = toml.to_owned();
    for begin in ["{ env = ", "{ file = "] {
        while let Some(at) = text.find(begin) {
            let end = at + text[at..].find('}').expect("a brace that is closed") + 1;
            text.replace_range(at..end, NOWHERE);
        }
    }
    text
}

#[tokio::test]
async fn every_shown_command_is_valid() {
    let mut used = BTreeSet::new();
    for page in pages() {
        for block in page.blocks("sh") {
            for line in block.lines() {
                let command = line.split(" # ").next().unwrap().split(" > ").next().unwrap();
                let mut words = command.split_whitespace().skip_while(|word| word.contains('='));
                if words.next() != Some("holdfast") {
                    continue;
                }
                // With `--help`, the program parses the arguments before it, including values, and does nothing else.
                let arguments: Vec<_> = words.chain(["--help"]).collect();
                let ran = output(holdfast(&arguments)).await;
                assert!(ran.status.success(), "{}: {line}: {}", page.name, text(&ran.stderr));
                used.insert(arguments[0].to_owned());
            }
        }
    }
    assert!(used.len() >= 6, "{used:?}");
}

/// A page names tests as `path/of/file.rs`: `one`, `another`.
#[test]
fn every_named_test_exists() {
    let mut seen = 0;
    for page in pages() {
        let text = page.prose().join(" ");
        let parts: Vec<_> = text.split('`').collect();
        let mut file = None;
        // Pairs each piece of code with the text before it.
        for (before, code) in parts.iter().step_by(2).zip(parts.iter().skip(1).step_by(2)) {
            let path = root().join(code);
            let continues = matches!(before.trim(), ":" | "," | ", and" | "and");
            if code.ends_with(".rs") && path.is_file() {
                file = Some(path);
            } else if let Some(path) = file.as_ref().filter(|_| continues && code.contains('_')) {
                let source = fs::read_to_string(path).unwrap();
                let (name, path) = (&page.name, path.display());
                assert!(source.contains(&format!("fn {code}(")), "{name}: {path} has no test {code}");
                seen += 1;
            } else if !continues {
                file = None;
            }
        }
    }
    assert!(seen >= 25, "{seen}");
}

#[test]
fn headings_become_anchors_as_on_github() {
    assert_eq!(anchor("What is in memory"), "what-is-in-memory");
    assert_eq!(anchor("Null, `latest`, and −32010?"), "null-latest-and-32010");
    assert_eq!(anchor("nginx, or any HTTP cache"), "nginx-or-any-http-cache");
}

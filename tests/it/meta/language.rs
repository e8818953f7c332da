//! Checks that comments, messages and docs stay in plain English, and that commit subjects keep their form.
//!
//! Some words and constructions hide the actor or the thing. In each part of the repository, they must not occur more
//! often than a limit per 1,000 words.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::lexer::{Kind, lexemes};
use crate::support::tools;

/// Words that end like a participle but are none. The test recognizes participles by their ending.
const NO_PARTICIPLES: [&str; 5] = ["often", "open", "then", "even", "seven"];

/// Number of lines that a failure lists.
const WORST: usize = 20;

/// Maximum length of a commit subject, in characters.
const MAX_SUBJECT: usize = 72;

/// This file. The test checks only commits after the one that added the file.
const THIS_FILE: &str = "tests/it/meta/language.rs";

/// A construction, and how often it may occur in 1,000 words.
struct Mark {
    name: &'static str,
    limit: f64,
    /// Returns whether the words begin with this construction.
    begins: fn(&[&str]) -> bool,
}

const MARKS: [Mark; 5] = [
    Mark { name: "what", limit: 3.0, begins: |words| is_one_of(words[0], &["what"]) },
    Mark { name: "who", limit: 1.0, begins: |words| is_one_of(words[0], &["who", "whoever", "whom"]) },
    Mark {
        name: "nobody",
        limit: 0.5,
        begins: |words| is_one_of(words[0], &["nobody", "somebody", "anybody"]),
    },
    Mark { name: "whatever", limit: 2.0, begins: is_headless },
    Mark { name: "passive", limit: 16.0, begins: is_passive },
];

/// A line of prose.
struct Line {
    place: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

// ## Marks

/// The letters of a word, without the punctuation around it.
fn bare(word: &str) -> &str {
    word.trim_matches(|character: char| !character.is_alphanumeric())
}

fn is_one_of(word: &str, words: &[&str]) -> bool {
    words.iter().any(|other| bare(word).eq_ignore_ascii_case(other))
}

/// "whatever", "whichever", "that which", "the one that", "the ones who".
fn is_headless(words: &[&str]) -> bool {
    let at = |index: usize, options: &[&str]| words.get(index).is_some_and(|word| is_one_of(word, options));
    at(0, &["whatever", "whichever"])
        || (at(0, &["that"]) && at(1, &["which"]))
        || (at(0, &["the"]) && at(1, &["one", "ones"]) && at(2, &["that", "who"]))
}

/// A form of "to be", perhaps an adverb, and a participle.
fn is_passive(words: &[&str]) -> bool {
    let forms = ["is", "are", "was", "were", "be", "been", "being"];
    let ends_phrase = |word: &str| !word.ends_with(char::is_alphanumeric);
    let is_participle = |word: &&str| {
        let word = bare(word).to_ascii_lowercase();
        (word.ends_with("ed") || word.ends_with("en"))
            && word.chars().all(char::is_alphanumeric)
            && !NO_PARTICIPLES.contains(&&word[..])
    };
    if !is_one_of(words[0], &forms) || ends_phrase(words[0]) {
        return false;
    }
    let is_adverb = |word: &&str| bare(word).ends_with("ly") && !ends_phrase(word);
    let skipped = usize::from(words.get(1).is_some_and(is_adverb));
    words.get(1 + skipped).is_some_and(is_participle)
}

/// Returns how often each mark occurs in 1,000 words, and the lines that contain marks, worst first.
fn measure(lines: &[Line]) -> ([f64; MARKS.len()], Vec<&Line>) {
    let of_line =
        |line: &'_ Line| -> Vec<String> { line.text.split_whitespace().map(str::to_owned).collect() };
    let words: Vec<(usize, String)> = lines
        .iter()
        .enumerate()
        .flat_map(|(at, line)| of_line(line).into_iter().map(move |word| (at, word)))
        .collect();
    let plain: Vec<&str> = words.iter().map(|(_, word)| &word[..]).collect();
    let total =
        plain.iter().filter(|word| word.contains(|letter: char| letter.is_ascii_alphabetic())).count();
    let mut counts = [0.0; MARKS.len()];
    let mut weights = vec![0.0; lines.len()];
    for (at, (line, _)) in words.iter().enumerate() {
        for (mark, count) in MARKS.iter().zip(&mut counts) {
            if (mark.begins)(&plain[at..]) {
                *count += 1.0;
                weights[*line] += 1.0 / mark.limit;
            }
        }
    }
    let mut worst: Vec<_> = lines.iter().zip(weights).filter(|(_, weight)| *weight > 0.0).collect();
    worst.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    #[expect(clippy::cast_precision_loss, reason = "counts of words are small")]
    let thousands = (total.max(1) as f64) / 1000.0;
    (counts.map(|count| count / thousands), worst.into_iter().map(|(line, _)| line).collect())
}

// ## Parts

fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
            if path.is_dir() {
                folders.push(path);
            } else if extension.is_some_and(|extension| extensions.contains(&&extension[..])) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn place(path: &Path, line: usize) -> String {
    format!("{}:{line}", path.strip_prefix(root()).unwrap().display())
}

/// Comments or string literals of Rust files.
fn rust(folder: &str, kinds: &[Kind]) -> Vec<Line> {
    let mut lines = Vec::new();
    for path in files(folder, &["rs"]) {
        let text = fs::read_to_string(&path).unwrap();
        let wanted = lexemes(&text).into_iter().filter(|lexeme| kinds.contains(&lexeme.kind));
        lines.extend(wanted.map(|lexeme| Line {
            place: place(&path, lexeme.line),
            text: lexeme.text.replace("\\n", " ").replace('\\', " "),
        }));
    }
    lines
}

/// The lines of text files, without blocks of code.
fn prose(paths: Vec<PathBuf>) -> Vec<Line> {
    let mut lines = Vec::new();
    for path in paths {
        let mut is_code = false;
        for (text, number) in fs::read_to_string(&path).unwrap().lines().zip(1..) {
            if text.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                lines.push(Line { place: place(&path, number), text: text.to_owned() });
            }
        }
    }
    lines
}

fn check(part: &str, lines: &[Line]) {
    let (measured, worst) = measure(lines);
    let mut report = String::new();
    for (mark, measured) in MARKS.iter().zip(measured) {
        let over = if measured > mark.limit { " TOO MANY" } else { "" };
        writeln!(report, "  {:<9} {measured:5.1}, at most {}{over}", mark.name, mark.limit).unwrap();
    }
    println!("{part}, per 1,000 words:\n{report}");
    if report.contains("TOO MANY") {
        for line in worst.iter().take(WORST) {
            writeln!(report, "{}: {}", line.place, line.text.trim()).unwrap();
        }
        panic!("{part}, per 1,000 words:\n{report}\nCONTRIBUTING.md has the rules");
    }
}

#[test]
fn source_comments_are_plain_english() {
    check("comments of src", &rust("src", &[Kind::Comment]));
}

#[test]
fn source_strings_are_plain_english() {
    check("string literals of src", &rust("src", &[Kind::String, Kind::RawString]));
}

#[test]
fn docs_are_plain_english() {
    let pages = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name));
    check("docs and README", &prose(pages.into_iter().chain(files("docs", &["md"])).collect()));
}

#[test]
fn configuration_is_plain_english() {
    check("config", &prose(files("config", &["toml", "yaml", "yml", "service"])));
}

#[test]
fn test_comments_are_plain_english() {
    let folders = ["tests", "benches", "fuzz/fuzz_targets"];
    let lines: Vec<_> = folders.into_iter().flat_map(|folder| rust(folder, &[Kind::Comment])).collect();
    check("comments of tests and benches", &lines);
}

// ## Commits

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the fault of a commit subject.
fn fault(subject: &str) -> Option<&'static str> {
    let (area, rest) = subject.split_once(": ").unwrap_or_default();
    let is_area = |character: char| character.is_ascii_lowercase() || "/_-.".contains(character);
    if subject.chars().count() > MAX_SUBJECT {
        Some("is longer than 72 characters")
    } else if area.is_empty() || rest.is_empty() || !area.chars().all(is_area) {
        Some("does not begin with `area: `")
    } else {
        None
    }
}

#[test]
fn commit_subjects_have_area_and_verb() {
    let first = git(&["log", "--diff-filter=A", "--format=%H", "--", THIS_FILE]);
    let Some(first) = first.as_deref().and_then(|log| log.lines().last()) else {
        return tools::skip("commit_subjects_have_area_and_verb", "there is no git history");
    };
    let subjects = git(&["log", "--format=%s", &format!("{first}..HEAD")]).unwrap_or_default();
    let faulty: Vec<_> = subjects
        .lines()
        .filter_map(|subject| fault(subject).map(|fault| format!("{subject:?} {fault}")))
        .collect();
    assert!(faulty.is_empty(), "{}", faulty.join("\n"));
}

#[test]
fn marks_are_found() {
    let line = |text: &str| Line { place: String::new(), text: text.to_owned() };
    let counts = |text: &str| {
        let words = text.split_whitespace().count();
        #[expect(clippy::cast_precision_loss, reason = "counts of words are small")]
        measure(&[line(text)]).0.map(|measured| measured * words as f64 / 1000.0)
    };
    assert_eq!(counts("What is stored, whoever asks, nobody knows."), [1.0, 1.0, 1.0, 0.0, 1.0]);
    assert_eq!(counts("Whatever the one that came is quickly forgotten."), [0.0, 0.0, 0.0, 2.0, 1.0]);
    assert_eq!(counts("It is open, is often red, and the head is. Ended"), [0.0; 5]);
    let long = "x".repeat(MAX_SUBJECT);
    assert_eq!(fault("cache: store receipts"), None);
    for faulty in ["store receipts", "Cache: store", "cache:", &format!("cache: {long}")] {
        assert!(fault(faulty).is_some(), "{faulty}");
    }
}

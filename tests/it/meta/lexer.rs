//! Rust source, split into comments, literals and code.

/// A piece of source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lexeme<'a> {
    pub kind: Kind,
    /// The piece without comment signs and quotes.
    pub text: &'a str,
    /// The line that it begins on, counted from one.
    pub line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Comment,
    String,
    RawString,
    /// A character literal, or the quote of a lifetime.
    Quote,
    /// A word, a number or part of one.
    Word,
    Sign,
}

/// Returns the pieces of a source text, without white space.
pub fn lexemes(source: &str) -> Vec<Lexeme<'_>> {
    let mut lexemes = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let (kind, length, text) = if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            let text = &rest[2..length];
            let text = text.strip_prefix(['/', '!']).unwrap_or(text);
            (Kind::Comment, length, text.trim())
        } else if rest.starts_with("/*") {
            let length = block_comment(rest);
            (Kind::Comment, length, rest[..length].trim_matches(['/', '*', ' ']))
        } else if let Some((length, text)) = raw_string(rest) {
            (Kind::RawString, length, text)
        } else if first == '"' {
            let length = quoted(rest, '"');
            (Kind::String, length, &rest[1..(length - 1).max(1)])
        } else if first == '\'' {
            let length = character_or_lifetime(rest);
            (Kind::Quote, length, &rest[..length])
        } else if is_word(first) {
            let length = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
            (Kind::Word, length, &rest[..length])
        } else {
            (Kind::Sign, first.len_utf8(), &rest[..first.len_utf8()])
        };
        if !first.is_whitespace() {
            lexemes.push(Lexeme { kind, text, line });
        }
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    lexemes
}

/// Length of a block comment, which may contain others.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length and content of a raw string, if the text begins with one.
fn raw_string(text: &str) -> Option<(usize, &str)> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let rest = &text[prefix.len()..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let content = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let (before, length) = (text.len() - content.len(), content.find(&end)?);
    Some((before + length + end.len(), &content[..length]))
}

/// Length of a literal between two quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if character == quote => return at + quote.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

fn character_or_lifetime(text: &str) -> usize {
    let mut characters = text.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        // The name after the quote is a word that begins no path.
        _ => 1,
    }
}

#[test]
fn lexemes_are_told_apart() {
    let source = "//! Doc\nfn f<'a>(x: &'a str) {\n let s = \"a \\\" // no\"; /* b /* c */ */ r#\"d\"e\"# '\"' b'x'\n}";
    let of = |kind| -> Vec<_> {
        let lexemes = lexemes(source).into_iter().filter(|lexeme| lexeme.kind == kind);
        lexemes.map(|lexeme| (lexeme.line, lexeme.text)).collect()
    };
    assert_eq!(of(Kind::Comment), [(1, "Doc"), (3, "b /* c")]);
    assert_eq!(of(Kind::String), [(3, "a \\\" // no")]);
    assert_eq!(of(Kind::RawString), [(3, "d\"e")]);
    assert_eq!(of(Kind::Quote), [(2, "'"), (2, "'"), (3, "'\"'"), (3, "'x'")]);
}

//! Rust source as tokens, without comments, literals and `#[cfg(test)]` items.

/// The code of a file, without test code.
pub struct Code {
    pub tokens: Vec<Token>,
    /// Modules that the file declares for tests only.
    pub test_modules: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Word(String),
    /// `::`
    Separator,
    Sign(char),
}

// === impl Code ===

impl Code {
    pub fn read(text: &str) -> Self {
        let (all, cfg_test) = (tokens(text), tokens("#[cfg(test)]"));
        let mut rest = &all[..];
        let mut code = Self { tokens: Vec::new(), test_modules: Vec::new() };
        while let Some((first, after)) = rest.split_first() {
            if let Some(item) = rest.strip_prefix(&cfg_test[..]) {
                let item = without_attributes(item);
                if let [Token::Word(keyword), Token::Word(name), Token::Sign(';'), ..] =
                    without_visibility(item)
                    && keyword == "mod"
                {
                    code.test_modules.push(name.clone());
                }
                rest = &item[item_length(item)..];
            } else {
                code.tokens.push(first.clone());
                rest = after;
            }
        }
        code
    }
}

// === impl Token ===

impl Token {
    pub fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }

    fn word(&self) -> Option<&str> {
        if let Self::Word(word) = self { Some(word) } else { None }
    }
}

/// Returns the tokens of a text. A string that is a path of this crate counts as that path, because attributes
/// name functions in strings.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest) {
            length
        } else if first == '"' {
            let length = quoted(rest, '"');
            let path = &rest[1..length - 1];
            if path.starts_with("crate::") || path.starts_with("super::") || path.starts_with("self::") {
                tokens.extend(self::tokens(path));
            }
            length
        } else if first == '\'' {
            character_or_lifetime(rest)
        } else if is_word(first) {
            let word: String = rest.chars().take_while(|character| is_word(*character)).collect();
            let length = word.len();
            tokens.push(Token::Word(word));
            length
        } else if rest.starts_with("::") {
            tokens.push(Token::Separator);
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of a block comment, which may contain others.
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

/// Returns the length of a raw string, if the text begins with one.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let rest = &text[prefix.len()..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let content = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let before = text.len() - content.len();
    Some(before + content.find(&end)? + end.len())
}

/// Returns the length of a literal between two quotes.
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
        // A lifetime: its name is a word that begins no path.
        _ => 1,
    }
}

/// Skips the attributes of an item.
fn without_attributes(mut item: &[Token]) -> &[Token] {
    while let [Token::Sign('#'), Token::Sign('['), ..] = item {
        item = &item[1 + group_length(&item[1..])..];
    }
    item
}

/// Skips `pub` or `pub(…)`.
pub fn without_visibility(item: &[Token]) -> &[Token] {
    match item {
        [first, rest @ ..] if first.is("pub") => match rest {
            [Token::Sign('('), ..] => &rest[group_length(rest)..],
            _ => rest,
        },
        _ => item,
    }
}

/// Returns the length of the bracketed group at the start of the tokens.
fn group_length(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('(' | '[' | '{') => depth += 1,
            Token::Sign(')' | ']' | '}') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Returns the length of an item, a field, an arm or a statement.
fn item_length(item: &[Token]) -> usize {
    let body = without_visibility(item);
    let keyword = body.first().and_then(Token::word).unwrap_or_default();
    let is_constant_function = keyword == "const" && body.get(1).is_some_and(|token| token.is("fn"));
    let ends_in_semicolon = matches!(keyword, "use" | "const" | "static" | "type") && !is_constant_function;
    let ends_in_block = is_constant_function
        || matches!(
            keyword,
            "async"
                | "enum"
                | "extern"
                | "fn"
                | "impl"
                | "macro_rules"
                | "mod"
                | "struct"
                | "trait"
                | "unsafe"
        );
    let mut at = 0;
    while at < item.len() {
        match &item[at] {
            Token::Sign(';') => return at + 1,
            Token::Sign(',') if !ends_in_semicolon && !ends_in_block => return at + 1,
            // The end of the enclosing group.
            Token::Sign(')' | ']' | '}') => return at,
            Token::Sign('{') => {
                at += group_length(&item[at..]);
                let goes_on = matches!(item.get(at), Some(Token::Sign(',' | ';' | '.' | '?')))
                    || item.get(at).is_some_and(|token| token.is("else"));
                if ends_in_block || (!ends_in_semicolon && !goes_on) {
                    return at;
                }
            }
            Token::Sign('(' | '[') => at += group_length(&item[at..]),
            _ => at += 1,
        }
    }
    at
}

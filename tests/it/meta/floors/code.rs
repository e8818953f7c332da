//! Rust source as tokens, without comments, literals and `#[cfg(test)]` items.

use crate::meta::lexer::{Kind, lexemes};

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
/// name functions by strings.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut lexemes = lexemes(text).into_iter().peekable();
    while let Some(lexeme) = lexemes.next() {
        let is_path = |text: &str| ["crate::", "super::", "self::"].iter().any(|root| text.starts_with(root));
        match lexeme.kind {
            Kind::String if is_path(lexeme.text) => tokens.extend(self::tokens(lexeme.text)),
            Kind::Comment | Kind::String | Kind::RawString | Kind::Quote => {}
            Kind::Word => tokens.push(Token::Word(lexeme.text.to_owned())),
            Kind::Sign if lexeme.text == ":" => match lexemes.next_if(|next| next.text == ":") {
                Some(_) => tokens.push(Token::Separator),
                None => tokens.push(Token::Sign(':')),
            },
            Kind::Sign => tokens.extend(lexeme.text.chars().map(Token::Sign)),
        }
    }
    tokens
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

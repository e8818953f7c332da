//! Method name patterns.

/// Method name pattern in which `*` matches any number of characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(Box<str>);

/// Invalid method name pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{glob:?} is not a method name pattern; use letters, digits, _ and *, such as eth_*")]
pub struct GlobError {
    /// The rejected pattern.
    pub glob: String,
}

// === impl Glob ===

impl Glob {
    pub(crate) fn try_new(glob: &str) -> Result<Self, GlobError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'*' | b'.' | b'-');
        if glob.is_empty() || !glob.bytes().all(fits) {
            return Err(GlobError { glob: glob.to_owned() });
        }
        Ok(Self(glob.into()))
    }

    /// Returns whether `name` matches. Takes the first occurrence of each part between two `*`, from left to right, and
    /// requires the last part at the end of `name`. With `*` as the only wildcard, this needs no backtracking.
    pub(super) fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

pub(super) fn globs(globs: &[String]) -> Vec<Glob> {
    globs.iter().filter_map(|glob| Glob::try_new(glob).ok()).collect()
}

pub(super) fn any(globs: &[Glob], method: &str) -> bool {
    globs.iter().any(|glob| glob.matches(method))
}

//! The modules of a source tree and the imports between their files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::code::{Code, Token, without_visibility};

/// Modules by their path, for example `proxy::stack`; the root is the empty path.
pub struct Tree {
    modules: BTreeMap<String, Module>,
}

/// One file.
struct Module {
    file: String,
    text: String,
    code: Code,
    uses: Vec<Use>,
    /// Other paths that the code names.
    paths: Vec<Named>,
}

/// One name that a `use` declaration imports, and whether the declaration re-exports it.
struct Use {
    name: String,
    path: Named,
    is_public: bool,
}

/// A path as the code writes it, and the inline modules around it.
struct Named {
    within: Vec<String>,
    path: Vec<String>,
}

/// An import: the file of the module `from` uses a name of the module `to`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub from: String,
    pub to: String,
    /// The path that the code names.
    pub path: String,
}

/// Maximum number of re-exports to resolve for a name.
const HOPS: usize = 16;

// === impl Tree ===

impl Tree {
    /// Reads all files of a folder.
    pub fn read(folder: &Path) -> Self {
        let mut sources = Vec::new();
        collect(folder, folder, &mut sources);
        Self::new(sources)
    }

    /// Builds the tree from files and their text. Ignores `main.rs`, which is another crate.
    pub fn new(sources: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut modules: BTreeMap<_, _> = sources
            .into_iter()
            .filter(|(file, _)| file != "main.rs")
            .map(|(file, text)| (module_of(&file), Module::new(file, text)))
            .collect();
        let tests: Vec<String> = modules
            .iter()
            .flat_map(|(path, module)| module.code.test_modules.iter().map(|name| join(path, name)))
            .collect();
        modules.retain(|path, _| !tests.iter().any(|test| is_within(path, test)));
        Self { modules }
    }

    /// Returns the file of a module.
    pub fn file(&self, module: &str) -> &str {
        &self.modules[module].file
    }

    /// Returns all imports between files, with re-exports resolved to the file that defines the name.
    pub fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (from, module) in &self.modules {
            let used = module.uses.iter().filter(|used| !used.is_public).map(|used| &used.path);
            for named in used.chain(&module.paths) {
                let Some(absolute) = self.absolute(from, named, HOPS) else { continue };
                if let Some(to) = self.defining(&absolute, HOPS).filter(|to| to != from) {
                    imports.insert(Import { from: from.clone(), to, path: named.path.join("::") });
                }
            }
        }
        imports
    }

    /// Returns the modules whose documentation draws floors, each with the names from the topmost down.
    pub fn drawings(&self) -> BTreeMap<String, Vec<String>> {
        let drawn = self.modules.iter().map(|(path, module)| (path.clone(), drawing(&module.text)));
        drawn.filter(|(_, names)| !names.is_empty()).collect()
    }

    /// Returns the modules directly below this one.
    pub fn children(&self, module: &str) -> BTreeSet<String> {
        self.modules.keys().filter_map(|path| child(module, path)).map(str::to_owned).collect()
    }

    /// Returns the path from the root, or `None` for a path of another crate.
    fn absolute(&self, module: &str, named: &Named, hops: usize) -> Option<Vec<String>> {
        let mut base: Vec<String> =
            module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
        base.extend(named.within.iter().cloned());
        let mut rest = &named.path[..];
        match rest.first()?.as_str() {
            "crate" => {
                base.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    base.pop()?;
                    rest = &rest[1..];
                }
            }
            first if self.modules.contains_key(&join(module, first)) => {
                base.truncate(base.len() - named.within.len());
            }
            first => {
                let hops = hops.checked_sub(1)?;
                let known = self.modules[module].uses.iter().find(|used| used.name == first)?;
                // A name that begins its own path belongs to another crate.
                if known.path.path.first().is_some_and(|name| name == first) {
                    return None;
                }
                base = self.absolute(module, &known.path, hops)?;
                rest = &rest[1..];
            }
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// Returns the module that defines the last name of a path.
    fn defining(&self, path: &[String], hops: usize) -> Option<String> {
        let (length, module) = (0..=path.len())
            .rev()
            .map(|length| (length, path[..length].join("::")))
            .find(|(_, module)| self.modules.contains_key(module))?;
        let Some(name) = path.get(length) else { return Some(module) };
        let Some(hops) = hops.checked_sub(1) else { return Some(module) };
        let source = &self.modules[&module];
        let further = |mut onward: Vec<String>| {
            onward.extend_from_slice(&path[length + 1..]);
            self.defining(&onward, hops)
        };
        if let Some(used) = source.uses.iter().find(|used| used.name == *name) {
            return self.absolute(&module, &used.path, hops).and_then(further).or(Some(module));
        }
        for glob in source.uses.iter().filter(|used| used.name == "*") {
            let Some(from) = self.absolute(&module, &glob.path, hops) else { continue };
            let from = from.join("::");
            if self.modules.get(&from).is_some_and(|module| module.has(name)) {
                return self.defining(
                    &[from.split("::").map(str::to_owned).collect(), vec![name.clone()]].concat(),
                    hops,
                );
            }
        }
        Some(module)
    }
}

// === impl Module ===

impl Module {
    fn new(file: String, text: String) -> Self {
        let code = Code::read(&text);
        let (uses, paths) = Scanner::default().scan(&code.tokens);
        Self { file, text, code, uses, paths }
    }

    /// Returns whether the file defines or re-exports the name.
    fn has(&self, name: &str) -> bool {
        let defines = |pair: &[Token]| match pair {
            [Token::Word(keyword), defined] => {
                ["const", "enum", "fn", "static", "struct", "trait", "type"].contains(&keyword.as_str())
                    && defined.is(name)
            }
            _ => false,
        };
        self.uses.iter().any(|used| used.is_public && used.name == name)
            || self.code.tokens.windows(2).any(defines)
    }
}

/// Finds `use` declarations and other paths in code.
#[derive(Default)]
struct Scanner {
    uses: Vec<Use>,
    paths: Vec<Named>,
    depth: usize,
    /// Open inline modules, with the depth at which each ends.
    within: Vec<(String, usize)>,
}

// === impl Scanner ===

impl Scanner {
    fn scan(mut self, tokens: &[Token]) -> (Vec<Use>, Vec<Named>) {
        let mut at = 0;
        while at < tokens.len() {
            let rest = &tokens[at..];
            let before = at.checked_sub(1).map(|before| &tokens[before]);
            at += self.step(before, rest);
        }
        (self.uses, self.paths)
    }

    /// Reads a declaration, path or token at the start of `rest`, and returns its length.
    fn step(&mut self, before: Option<&Token>, rest: &[Token]) -> usize {
        let body = without_visibility(rest);
        let visibility = rest.len() - body.len();
        match body {
            // `use<…>` lists captured lifetimes.
            [first, second, ..] if first.is("use") && *second != Token::Sign('<') => {
                let length = body.iter().position(|token| *token == Token::Sign(';')).unwrap_or(body.len());
                self.declare(&body[1..length], &mut Vec::new(), visibility > 0);
                visibility + length
            }
            _ if visibility > 0 => visibility,
            [first, Token::Word(name), Token::Sign('{'), ..] if first.is("mod") => {
                self.within.push((name.clone(), self.depth));
                2
            }
            [Token::Sign('{'), ..] => {
                self.depth += 1;
                1
            }
            [Token::Sign('}'), ..] => {
                self.depth = self.depth.saturating_sub(1);
                self.within.retain(|(_, depth)| *depth < self.depth);
                1
            }
            [Token::Word(_), Token::Separator, ..] => {
                let mut path = Vec::new();
                let mut length = 0;
                while let Some(Token::Word(name)) = rest.get(length) {
                    path.push(name.clone());
                    length += 1;
                    if rest.get(length) != Some(&Token::Separator) {
                        break;
                    }
                    length += 1;
                }
                if !matches!(before, Some(Token::Separator | Token::Sign('.'))) {
                    let named = self.named(path);
                    self.paths.push(named);
                }
                length
            }
            _ => 1,
        }
    }

    /// Reads the tree of a `use` declaration below a prefix.
    fn declare(&mut self, tree: &[Token], prefix: &mut Vec<String>, is_public: bool) {
        // `::name` belongs to another crate.
        if prefix.is_empty() && tree.first() == Some(&Token::Separator) {
            return;
        }
        let outer = prefix.len();
        let mut rest = tree;
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match first {
                Token::Sign('{') => {
                    let end = closing(after);
                    self.declare(&after[..end], prefix, is_public);
                    prefix.truncate(outer);
                    rest = &after[(end + 1).min(after.len())..];
                    continue;
                }
                Token::Sign(',') => prefix.truncate(outer),
                Token::Word(name) if name == "as" => {}
                Token::Word(name) => prefix.push(name.clone()),
                Token::Sign('*') => prefix.push("*".to_owned()),
                Token::Separator | Token::Sign(_) => continue,
            }
            // A branch ends here, unless its path or an alias continues.
            let ends = matches!(rest.first(), None | Some(Token::Sign(',')));
            if ends && prefix.len() > outer && *first != Token::Sign(',') {
                let is_renamed = tree.len() - rest.len() >= 2 && tree[tree.len() - rest.len() - 2].is("as");
                let mut path = prefix.clone();
                let mut name = path.last().cloned().unwrap_or_default();
                if is_renamed || name == "*" {
                    path.pop();
                }
                if name == "self" {
                    path.pop();
                    name = path.last().cloned().unwrap_or_default();
                } else if is_renamed && path.last().is_some_and(|last| last == "self") {
                    path.pop();
                }
                let path = self.named(path);
                self.uses.push(Use { name, path, is_public });
                prefix.truncate(outer);
            }
        }
        prefix.truncate(outer);
    }

    fn named(&self, path: Vec<String>) -> Named {
        Named { within: self.within.iter().map(|(name, _)| name.clone()).collect(), path }
    }
}

/// Returns the position of the brace that closes the one before these tokens.
fn closing(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('{') => depth += 1,
            Token::Sign('}') if depth == 0 => return at,
            Token::Sign('}') => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns the names in the first drawing after the heading `# Floors`, from the topmost down.
pub fn drawing(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .skip_while(|line| line.trim() != "# Floors")
        .skip_while(|line| line.trim() != "```text")
        .skip(1)
        .take_while(|line| line.trim() != "```")
        // A line with more indentation continues the one above it.
        .filter_map(|line| line.strip_prefix(' ').filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .map(|name| name.trim_end_matches('/').trim_end_matches(".rs").to_owned())
        .collect()
}

/// Returns the name directly below `module` on the way to `path`.
pub fn child<'a>(module: &str, path: &'a str) -> Option<&'a str> {
    let below = if module.is_empty() { path } else { path.strip_prefix(module)?.strip_prefix("::")? };
    below.split("::").next().filter(|name| !name.is_empty())
}

fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|below| below.is_empty() || below.starts_with("::"))
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn module_of(file: &str) -> String {
    let path = file.trim_end_matches(".rs").replace('/', "::");
    match path.as_str() {
        "lib" => String::new(),
        path => path.strip_suffix("::mod").unwrap_or(path).to_owned(),
    }
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            sources.push((file, fs::read_to_string(&path).unwrap()));
        }
    }
}

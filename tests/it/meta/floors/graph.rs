//! Cycles among the imports of a tree, and imports that violate its drawn floors.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::tree::{Import, Tree, child};

/// Returns a message for each group of files that import each other, with one import for each edge.
pub fn cycles(tree: &Tree) -> Vec<String> {
    let imports = tree.imports();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for import in &imports {
        edges.entry(&import.from).or_default().insert(&import.to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|module| (*module, reachable(&edges, module))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut groups: Vec<BTreeSet<&str>> = edges
        .keys()
        .filter(|module| reaches(module, module))
        .map(|module| reached[module].iter().copied().filter(|other| reaches(other, module)).collect())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups.iter().map(|group| described(tree, &imports, group)).collect()
}

/// Returns the modules that this one imports, directly or indirectly.
fn reachable<'a>(edges: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in edges.get(module).into_iter().flatten() {
            if found.insert(*next) {
                open.push(next);
            }
        }
    }
    found
}

fn described(tree: &Tree, imports: &BTreeSet<Import>, group: &BTreeSet<&str>) -> String {
    let files: Vec<_> = group.iter().map(|module| tree.file(module)).collect();
    let mut text = format!("{} files import each other: {}", group.len(), files.join(", "));
    let mut edges: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for import in imports
        .iter()
        .filter(|import| [&import.from, &import.to].iter().all(|end| group.contains(end.as_str())))
    {
        edges.entry((&import.from, &import.to)).or_default().push(&import.path);
    }
    for ((from, to), paths) in edges {
        // A path from the root or the parent is clearer than one that begins with an imported name.
        let is_full =
            |path: &&&str| ["crate::", "self::", "super::"].iter().any(|start| path.starts_with(start));
        let path = paths.iter().find(is_full).unwrap_or(&paths[0]);
        let _ = write!(text, "\n  {} → {}: {path}", tree.file(from), tree.file(to));
    }
    text
}

/// Returns a message for each import that leads upwards in a drawing, and for each drawing that does not match its module.
pub fn upward(tree: &Tree) -> Vec<String> {
    let imports = tree.imports();
    let mut found = Vec::new();
    for (module, drawn) in tree.drawings() {
        let file = tree.file(&module);
        let children = tree.children(&module);
        found.extend(
            children
                .iter()
                .filter(|name| !drawn.contains(name))
                .map(|name| format!("{file} does not draw {name}")),
        );
        found.extend(
            drawn
                .iter()
                .filter(|name| !children.contains(*name))
                .map(|name| format!("{file} draws {name}, which does not exist")),
        );
        let floor = |path| drawn.iter().position(|name| child(&module, path) == Some(name));
        found.extend(imports.iter().filter(|import| floor(&import.from) > floor(&import.to)).filter_map(
            |import| {
                let (from, to) = (child(&module, &import.from)?, child(&module, &import.to)?);
                Some(format!(
                    "{} imports {} ({}), but {file} draws {to} above {from}",
                    tree.file(&import.from),
                    import.path,
                    tree.file(&import.to),
                ))
            },
        ));
    }
    found
}

//! Reads Rust sources as far as the checks need it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Every file below `src/`, by its path there, as if all packages were modules of one: `limit/lib.rs` is `limit.rs`, and
/// what it calls `crate::Budget` is `crate::limit::Budget`.
pub(crate) fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    let packages: Vec<String> = names
        .filter(|folder| folder.join("Cargo.toml").exists())
        .map(|folder| folder.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push(as_module(path.strip_prefix(&root).unwrap(), &text, &packages));
            }
        }
    }
    assert!(files.len() > 5, "no sources found");
    files.sort();
    files
}

/// A file of a package as a module of the whole. Packages have a folder below `src/` with their manifest.
fn as_module(path: &Path, text: &str, packages: &[String]) -> (PathBuf, String) {
    let package = path.iter().next().unwrap().to_str().unwrap();
    let is_in_package = packages.iter().any(|name| name == package);
    let own = if is_in_package { format!("crate::{package}::") } else { "crate::".to_owned() };
    let text = packages.iter().fold(text.replace("crate::", &own), |text, name| {
        text.replace(&format!("andante_{name}"), &format!("crate::{name}"))
    });
    let is_root = is_in_package && path == Path::new(package).join("lib.rs");
    (if is_root { Path::new(package).with_extension("rs") } else { path.to_owned() }, text)
}

/// Every path that begins with `root::`, in imports and in the middle of code; groups in braces are taken apart.
pub(crate) fn paths_of(code: &str, root: &str) -> Vec<String> {
    let start = format!("{root}::");
    let mut paths = BTreeSet::new();
    for (at, _) in code.match_indices(&start) {
        let before = code[..at].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            expand(&mut code[at + start.len()..].chars().peekable(), root, &mut paths);
        }
    }
    paths.into_iter().collect()
}

/// Reads one path, or a group of them, behind `prefix`.
pub(crate) fn expand(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, prefix: &str, paths: &mut BTreeSet<String>) {
    let mut path = prefix.to_owned();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        if rest.next_if_eq(&'{').is_some() {
            loop {
                expand(rest, &path, paths);
                // An alias, and other text between a path and the comma after it.
                while rest.next_if(|c| !matches!(c, ',' | '}')).is_some() {}
                if rest.next() != Some(',') {
                    return;
                }
            }
        }
        let mut name = String::new();
        while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '*')) {
            name.push(c);
        }
        if !name.is_empty() && name != "self" {
            path = format!("{path}::{name}");
        }
        if name.is_empty() || rest.next_if_eq(&':').is_none() || rest.next_if_eq(&':').is_none() {
            if path != prefix || name == "self" {
                paths.insert(path);
            }
            return;
        }
    }
}

/// `text` with comments, strings and characters blanked, so that only code remains, on its lines.
pub(crate) fn without_text(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(raw) = raw_string(rest) {
            raw
        } else if c == '"' {
            quoted(rest, '"')
        } else if c == '\'' && is_character(rest) {
            quoted(rest, '\'')
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        code.push(' ');
        code.extend(rest[..length].chars().filter(|c| *c == '\n'));
        rest = &rest[length..];
    }
    code
}

/// The length of the raw string that `rest` begins with.
fn raw_string(rest: &str) -> Option<usize> {
    let hashes = rest.strip_prefix('r')?.bytes().take_while(|byte| *byte == b'#').count();
    let body = rest[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(2 + hashes + body.find(&end).map_or(body.len(), |at| at + end.len()))
}

/// The length of the text in quotes that `rest` begins with.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'x'` and `'\n'` are characters; `'a` is a lifetime.
fn is_character(rest: &str) -> bool {
    let mut after = rest.chars().skip(1);
    after.next() == Some('\\') || after.next() == Some('\'')
}

/// `code` without the items under `#[cfg(test)]`.
pub(crate) fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(MARK) {
        kept.push_str(&rest[..at]);
        rest = &rest[at + MARK.len()..];
        // An item ends with its block or a semicolon, a field with its comma.
        let (mut braces, mut others, mut generics) = (0_usize, 0_usize, 0_usize);
        let end = rest.char_indices().find(|(at, c)| {
            let before = rest[..*at].chars().next_back().unwrap_or(' ');
            match c {
                '{' => braces += 1,
                '}' => braces = braces.saturating_sub(1),
                _ if braces > 0 => {}
                '(' | '[' => others += 1,
                ')' | ']' => others = others.saturating_sub(1),
                '<' if before.is_alphanumeric() || before == ':' => generics += 1,
                '>' if !matches!(before, '-' | '=') => generics = generics.saturating_sub(1),
                _ => {}
            }
            braces == 0 && (*c == '}' || others == 0 && generics == 0 && matches!(c, ';' | ','))
        });
        rest = end.map_or("", |(end, _)| &rest[end + 1..]);
    }
    kept + rest
}

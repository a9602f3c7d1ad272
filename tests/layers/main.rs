//! Checks of the architecture: which layer may import which, what pure code may not touch, and how hard to read each
//! folder may be.

mod image;
mod ratchet;
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use sources::{expand, paths_of, sources, without_tests, without_text};

/// The layers, lowest first, and the top-level modules of each. A module imports from itself, from modules before it in
/// its own row, and from lower layers: so there are no circles.
const LAYERS: &[(&str, &[&str])] = &[
    ("words", &["clock", "memory", "trace", "metrics"]),
    ("pure", &["fleet", "fleet_model", "limit", "hint", "policy", "learn", "order"]),
    ("lane", &["limiter", "lane", "plan", "error"]),
    ("config", &["config"]),
    ("ports", &["store", "listen", "ca", "tls", "dial", "otlp"]),
    ("proxy", &["proxy"]),
    ("admin", &["admin"]),
    ("app", &["app", "mock", "batch"]),
    ("cli", &["cli"]),
    ("main", &["main", "lib"]),
];

/// The layers inside of `proxy`, lowest first.
const PROXY: &[(&str, &[&str])] = &[
    (
        "shared words",
        &[
            "drain",
            "failure_log",
            "incidents",
            "log_throttle",
            "protocol",
            "recent",
            "request_stats",
            "request_trace",
            "retry_log",
            "shown_url",
            "signatures",
        ],
    ),
    ("messages", &["message"]),
    ("connections to upstreams", &["outbound"]),
    ("what a reload replaces, and what requests share", &["settings", "sharing", "replays", "cache"]),
    (
        "a request at each stage",
        &["context", "client_connection", "session", "takeover", "exchange", "call", "client_aborts", "request_memory"],
    ),
    ("its steps", &["steps"]),
    ("what they would make of a request", &["explain"]),
    ("their order", &["stack"]),
    ("connections of workers", &["inbound"]),
];

/// Imports with which pure code (including a lane's state and its order) could read a clock, do I/O or spawn.
const IMPURE: &[&str] = &[
    "tokio",
    "hyper",
    "hyper_util",
    "tower",
    "std::net",
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Files that need one of these for buffers alone, and what they import: flate2 decodes into an `io::Write`.
const IN_MEMORY: &[(&str, &str)] = &[("hint/coding.rs", "std::io")];

#[test]
fn every_file_imports_from_lower_layers_only() {
    let sources = sources();
    // Tests may import higher layers: they play the part of callers.
    let tests: Vec<PathBuf> = sources.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let code = sources.iter().filter(|(path, _)| !tests.iter().any(|tests| path.with_extension("").starts_with(tests)));
    let wrong: Vec<String> = code.flat_map(|(path, text)| violations(path, text)).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn no_modules_of_one_parent_import_each_other_in_a_circle() {
    let mut uses = BTreeMap::<Module, BTreeMap<String, BTreeSet<String>>>::new();
    for Use { parent, from, to } in uses_of(&sources()) {
        uses.entry(parent).or_default().entry(from).or_default().insert(to);
    }
    let circles: Vec<String> = uses
        .iter()
        .filter_map(|(parent, uses)| Some(format!("{}: {}", parent.join("::"), circle(uses)?.join(" → "))))
        .collect();
    assert!(circles.is_empty(), "\n{}", circles.join("\n"));
}

#[test]
fn the_layers_of_the_proxy_import_downwards_only() {
    let layer = |name: &str| PROXY.iter().position(|(_, modules)| modules.contains(&name));
    for Use { parent, from, to } in uses_of(&sources()) {
        if parent == ["proxy"] {
            let (Some(upper), Some(lower)) = (layer(&from), layer(&to)) else {
                panic!("{from} or {to} is in no layer")
            };
            assert!(lower <= upper, "`{from}` ({}) imports `{to}` ({})", PROXY[upper].0, PROXY[lower].0);
        }
    }
}

#[test]
fn parents_stand_beside_their_children() {
    for (path, _) in sources() {
        assert_ne!(path.file_name().unwrap(), "mod.rs", "{}: parents are foo.rs beside foo/", path.display());
    }
}

#[test]
fn a_header_above_an_impl_names_its_type() {
    for (path, text) in sources() {
        for (name, below) in impl_headers(&text) {
            let words: Vec<&str> = below.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            assert!(words.contains(&name), "{}: `=== impl {name} ===` stands above `{below}`", path.display());
        }
    }
    let stale = "struct A;\n// === impl B ===\n\nimpl fmt::Debug for A {";
    assert_eq!(impl_headers(stale).collect::<Vec<_>>(), [("B", "impl fmt::Debug for A {")]);
}

/// The names in headers `// === impl Name ===` of `text`, each with the line of code that follows.
fn impl_headers(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with(['/', '#']);
    let lines: Vec<&str> = text.lines().collect();
    (0..lines.len()).filter_map(move |at| {
        let header = lines[at].trim().strip_prefix("// === impl ")?.strip_suffix(" ===")?;
        let name = header.split(['<', '(']).next()?;
        Some((name, lines[at + 1..].iter().find(is_code).copied().unwrap_or_default()))
    })
}

#[test]
fn the_check_finds_what_it_is_for() {
    let wrong = |path: &str, text: &str| violations(Path::new(path), text).len();
    for (path, text) in [
        ("limit/window.rs", "use crate::proxy::Pool;"),
        ("limit.rs", "use crate::{clock, config::Config};"),
        ("limit.rs", "use crate::{\n    clock::{self, Instant},\n    lane::{Lane},\n};"),
        ("limit.rs", "use crate::policy::Rules;"),
        ("lane.rs", "fn f() { crate::admin::f() }"),
        ("config/value.rs", "pub(crate) use crate::dial as d;"),
        ("lane/state.rs", "use tokio::sync::Notify;"),
        ("order/fifo.rs", "use std::{fmt, time::{Duration, Instant}};"),
        ("hint/openai.rs", "fn f() { let _ = std::time::SystemTime::now(); }"),
        ("hint/openai.rs", "use std::io::Read;"),
        ("hint/coding.rs", "use std::net::TcpStream;"),
        ("main.rs", "use andante::x;\nmod stranger;\nuse crate::stranger::Thing;"),
        ("stranger.rs", "fn f() {}"),
        ("limit.rs", "#[cfg(test)]\nmod tests {\n    use super::*;\n}\nuse crate::proxy::Pool;"),
        ("limit.rs", "const S: &str = \"// {\";\nuse crate::proxy::Pool;"),
        ("limit.rs", "#[cfg(test)]\nmod tests;\nuse crate::proxy::Pool;"),
    ] {
        assert_eq!(wrong(path, text), 1, "{path}: {text}\n{:?}", violations(Path::new(path), text));
    }
    for (path, text) in [
        ("limit/window.rs", "use crate::{clock::Instant, limit::Rate};\nuse std::time::Duration;"),
        ("limit/window.rs", "// use crate::proxy::Pool;\n/// [`crate::proxy`] and tokio::time\nfn f() {}"),
        ("limit/window.rs", "const S: &str = \"crate::proxy::Pool tokio::x\";"),
        ("limit.rs", "#[cfg(test)]\nmod tests {\n    use crate::proxy::Pool;\n    fn f() { let c = '{'; }\n}"),
        ("policy.rs", "use crate::limit::LimitSpec;"),
        ("lane/driver.rs", "use tokio::sync::Notify;"),
        ("main.rs", "use andante::cli::Cli;"),
    ] {
        assert_eq!(violations(Path::new(path), text), Vec::<String>::new(), "{path}: {text}");
    }
    let files = [
        ("a.rs", "mod b; mod c; mod d; pub use d::{D, e::E};"),
        ("a/b.rs", "use super::c::C; fn f() { super::E::new() }"),
        ("a/c.rs", "use crate::a::{d::{self, D}, Item};"),
        ("a/d.rs", "mod e;"),
        ("a/d/e.rs", "use super::super::b::B; use super::D;"),
        ("a/d/tests.rs", "use crate::a::c;"),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
    let found: Vec<_> = uses_of(&files).into_iter().map(|found| (found.from, found.to)).collect();
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(found, [pair("b", "c"), pair("b", "d"), pair("c", "d"), pair("d", "b")]);
    let edges = |pairs: &[(&str, &str)]| {
        let mut edges = BTreeMap::<String, BTreeSet<String>>::new();
        for (from, to) in pairs {
            edges.entry((*from).into()).or_default().insert((*to).into());
        }
        edges
    };
    assert_eq!(circle(&edges(&[("a", "b"), ("b", "c"), ("a", "c")])), None);
    assert!(circle(&edges(&[("x", "a"), ("a", "b"), ("b", "c"), ("c", "a")])).is_some());
    let declared = "mod a;\n#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod inline { }\n// #[cfg(test)] mod no;";
    assert_eq!(test_modules(Path::new("config.rs"), declared), [Path::new("config/tests")]);
    assert_eq!(test_modules(Path::new("lib.rs"), declared), [Path::new("tests")]);
}

/// A module by the names on the way to it.
type Module = Vec<String>;

/// Of two modules below `parent` one imports from the other, or something below it does from something below the other.
struct Use {
    parent: Module,
    from: String,
    to: String,
}

/// Imports between modules, without tests.
fn uses_of(sources: &[(PathBuf, String)]) -> Vec<Use> {
    let module = |path: &Path| -> Module {
        path.with_extension("").components().map(|name| name.as_os_str().to_string_lossy().into_owned()).collect()
    };
    let tests: Vec<PathBuf> = sources.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_test = |path: &Path| {
        tests.iter().any(|tests| path.with_extension("").starts_with(tests)) || path.ends_with("tests.rs")
    };
    let modules: BTreeSet<Module> = sources.iter().map(|(path, _)| module(path)).collect();
    let passed_on: BTreeMap<(Module, String), Module> =
        sources.iter().flat_map(|(path, text)| passed_on(&module(path), &without_text(text))).collect();
    let mut uses = BTreeSet::new();
    for (path, text) in sources.iter().filter(|(path, _)| !is_test(path)) {
        let (own, code) = (module(path), without_tests(&without_text(text)));
        for import in ["crate", "super"].into_iter().flat_map(|root| paths_of(&code, root)) {
            let mut names = import.split("::").peekable();
            let mut target = own.clone();
            if names.next_if_eq(&"crate").is_some() {
                target.clear();
            }
            while names.next_if_eq(&"super").is_some() {
                target.pop();
            }
            target.extend(names.map(str::to_owned));
            let mut item = None;
            while !target.is_empty() && !modules.contains(&target) {
                item = target.pop();
            }
            // An item that a parent re-exports belongs to its child.
            while let Some(from) = item.as_ref().and_then(|item| passed_on.get(&(target.clone(), item.clone()))) {
                target.clone_from(from);
            }
            while !target.is_empty() && !modules.contains(&target) {
                target.pop();
            }
            let common = own.iter().zip(&target).take_while(|(a, b)| a == b).count();
            if let (Some(from), Some(to)) = (own.get(common), target.get(common)) {
                uses.insert((own[..common].to_vec(), from.clone(), to.clone()));
            }
        }
    }
    uses.into_iter().map(|(parent, from, to)| Use { parent, from, to }).collect()
}

/// The items that `module` with this `code` re-exports by `pub use`, and their modules.
fn passed_on(module: &Module, code: &str) -> Vec<((Module, String), Module)> {
    let mut passed = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let before = code[..at].trim_end();
        let visible = before.ends_with("pub")
            || before.ends_with(')') && before.rfind("pub(").is_some_and(|pub_at| !before[pub_at..].contains(';'));
        if !visible {
            continue;
        }
        let mut paths = BTreeSet::new();
        expand(&mut code[at + "use ".len()..].chars().peekable(), "", &mut paths);
        for path in paths {
            let mut names = path.trim_start_matches("::").split("::").peekable();
            let mut from = module.clone();
            if names.next_if_eq(&"crate").is_some() {
                from.clear();
            }
            while names.next_if_eq(&"self").is_some() {}
            while names.next_if_eq(&"super").is_some() {
                from.pop();
            }
            from.extend(names.map(str::to_owned));
            if let Some(item) = from.pop() {
                passed.push(((module.clone(), item), from));
            }
        }
    }
    passed
}

/// A cycle of imports, if there is one.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn visit<'a>(
        at: &'a str,
        uses: &'a BTreeMap<String, BTreeSet<String>>,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> bool {
        if way.contains(&at) {
            way.push(at);
            return true;
        }
        if !done.insert(at) {
            return false;
        }
        way.push(at);
        if uses.get(at).into_iter().flatten().any(|next| visit(next, uses, way, done)) {
            return true;
        }
        way.pop();
        false
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|start| {
        let mut way = Vec::new();
        visit(start, uses, &mut way, &mut done).then(|| way.into_iter().map(str::to_owned).collect())
    })
}

/// The modules in files of their own that the file at `path` declares for tests alone, as paths without extension.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let folder = if path == Path::new("lib.rs") { PathBuf::new() } else { path.with_extension("") };
    let code = without_text(text);
    let declarations = code.split("#[cfg(test)]").skip(1).filter_map(|after| after.trim_start().strip_prefix("mod "));
    let names = declarations.filter_map(|after| after.split_once(';')).map(|(name, _)| name.trim());
    names.filter(|name| !name.contains('{')).map(|name| folder.join(name)).collect()
}

/// Imports of the file at `path` (below `src/`) that its layer forbids.
fn violations(path: &Path, text: &str) -> Vec<String> {
    let first = path.components().next().unwrap().as_os_str().to_string_lossy();
    let module = first.trim_end_matches(".rs");
    let Some(own) = place(module) else {
        return vec![format!("{}: `{module}` is in no layer; add it to the table", path.display())];
    };
    let code = without_tests(&without_text(text));
    let mut wrong = Vec::new();
    for import in paths_of(&code, "crate") {
        let target = import.split("::").nth(1).unwrap_or_default();
        // A name in capitals is an item of the crate's root.
        let lower = target == module || place(target).is_some_and(|target| target < own);
        if !lower && !target.starts_with(char::is_uppercase) {
            wrong.push(format!("{}: `{module}` ({}) imports `{import}`", path.display(), LAYERS[own.0].0));
        }
    }
    let pure = ["lane/state", "lane/key"].iter().any(|pure| path.with_extension("").starts_with(pure));
    if pure || LAYERS[own.0].0 == "pure" {
        let roots: BTreeSet<_> = IMPURE.iter().map(|path| path.split("::").next().unwrap()).collect();
        for import in roots.into_iter().flat_map(|root| paths_of(&code, root)) {
            let banned = |path: &&&str| import == **path || import.starts_with(&format!("{path}::"));
            let in_memory =
                IN_MEMORY.iter().any(|(file, allowed)| path == Path::new(file) && import.starts_with(allowed));
            if let Some(banned) = IMPURE.iter().find(banned).filter(|_| !in_memory) {
                wrong.push(format!("{}: pure code uses `{banned}`", path.display()));
            }
        }
    }
    wrong
}

/// Which layer `module` is in, and where in its row.
fn place(module: &str) -> Option<(usize, usize)> {
    let rows = LAYERS.iter().enumerate();
    rows.filter_map(|(layer, (_, row))| Some((layer, row.iter().position(|name| *name == module)?))).next()
}

//! Counts of code that is hard to read, per folder of `src/`. A count may only fall.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{sources, test_modules};
use crate::sources::{without_tests, without_text};

/// Longer functions have parts that a reader could name.
const MAX_FUNCTION_LINES: usize = 60;
/// Types with more fields have groups that belong together.
const MAX_FIELDS: usize = 12;

/// First words of a sentence that do not name its subject.
const FIRST_WORDS: [&str; 14] = [
    "What", "Who", "Whoever", "Whose", "Those", "It", "They", "Its", "Their", "One", "Nothing", "Nobody", "That", "So",
];

/// Phrases that technical English does not use.
const ARCHAIC: [&str; 14] = [
    "of which",
    "to which",
    "whoever",
    "nobody",
    "anew",
    "in vain",
    "at hand",
    "for ever",
    "under way",
    "held up",
    "gives way",
    "goes on",
    "comes back",
    "is said",
];

/// A kind of code that is hard to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Count {
    LongFunctions,
    LargeTypes,
    /// Types with methods in another file than their own.
    SplitTypes,
    FirstWords,
    ArchaicWords,
}

const COUNTS: [(Count, &str); 5] = [
    (Count::LongFunctions, "functions of more than 60 lines"),
    (Count::LargeTypes, "types of more than 12 fields"),
    (Count::SplitTypes, "types with methods outside of their file"),
    (Count::FirstWords, "sentences that begin with a word of FIRST_WORDS"),
    (Count::ArchaicWords, "sentences with a phrase of ARCHAIC"),
];

/// Each folder's counts, in the order of `COUNTS`. Other folders have none.
const ALLOWED: &[(&str, [usize; 5])] = &[
    ("admin", [0, 4, 0, 4, 0]),
    ("app", [2, 1, 1, 0, 0]),
    ("batch", [0, 0, 0, 6, 1]),
    ("ca", [0, 0, 0, 6, 0]),
    ("cli", [0, 2, 0, 3, 1]),
    ("config", [0, 3, 1, 1, 1]),
    ("dial", [0, 0, 0, 1, 0]),
    ("error", [1, 0, 1, 0, 0]),
    ("fleet", [1, 1, 2, 0, 0]),
    ("fleet_model", [0, 1, 0, 0, 0]),
    ("hint", [0, 2, 0, 5, 0]),
    ("lane", [0, 1, 4, 20, 4]),
    ("learn", [5, 7, 6, 12, 0]),
    ("limit", [0, 0, 1, 13, 1]),
    ("memory", [0, 0, 0, 1, 0]),
    ("metrics", [0, 1, 0, 1, 0]),
    ("mock", [0, 0, 1, 0, 0]),
    ("order", [0, 1, 2, 15, 0]),
    ("otlp", [0, 0, 0, 2, 0]),
    ("policy", [0, 1, 0, 1, 0]),
    ("proxy", [0, 7, 0, 35, 7]),
    ("store", [0, 0, 0, 1, 0]),
];

/// Folder, kind, and place of a finding.
type Finding = (String, Count, String);

#[test]
fn no_folder_becomes_harder_to_read() {
    let findings = findings(&sources());
    let allowed: BTreeMap<&str, [usize; 5]> = ALLOWED.iter().copied().collect();
    let folders: BTreeSet<&str> =
        findings.iter().map(|(folder, ..)| &**folder).chain(allowed.keys().copied()).collect();
    let mut wrong = Vec::new();
    for folder in folders {
        for (at, (count, what)) in COUNTS.into_iter().enumerate() {
            let found: Vec<&str> = findings
                .iter()
                .filter(|(in_folder, kind, _)| in_folder == folder && *kind == count)
                .map(|(.., place)| &**place)
                .collect();
            let most = allowed.get(folder).map_or(0, |counts| counts[at]);
            match found.len() {
                more if more > most => {
                    wrong.push(format!("{folder}: {more} {what}, {most} allowed:\n  {}", found.join("\n  ")));
                }
                fewer if fewer < most => wrong.push(format!("{folder}: {what}: write {fewer} instead of {most}")),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Everything in these files that is counted.
fn findings(sources: &[(PathBuf, String)]) -> Vec<Finding> {
    let tests: Vec<PathBuf> = sources.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let is_test = |path: &Path| tests.iter().any(|tests| path.with_extension("").starts_with(tests));
    let mut findings = Vec::new();
    let mut add = |path: &Path, count: Count, what: String| {
        let folder = path.iter().next().unwrap().to_string_lossy().trim_end_matches(".rs").to_owned();
        findings.push((folder, count, what));
    };
    let mut split = BTreeMap::new();
    for (path, text) in sources {
        let place = path.display();
        for sentence in sentences(text) {
            if FIRST_WORDS.iter().any(|word| first_word(&sentence) == *word) {
                add(path, Count::FirstWords, format!("{place}: {sentence}"));
            }
            let lower = sentence.to_lowercase();
            if ARCHAIC.iter().any(|phrase| has_phrase(&lower, phrase)) {
                add(path, Count::ArchaicWords, format!("{place}: {sentence}"));
            }
        }
        if is_test(path) {
            continue;
        }
        let code = without_tests(&without_text(text));
        for (name, lines) in functions(&code).into_iter().filter(|(_, lines)| *lines > MAX_FUNCTION_LINES) {
            add(path, Count::LongFunctions, format!("{place}: {name} has {lines} lines"));
        }
        for (name, fields) in structs(&code).into_iter().filter(|(_, fields)| *fields > MAX_FIELDS) {
            add(path, Count::LargeTypes, format!("{place}: {name} has {fields} fields"));
        }
        let own = types(&code);
        for name in inherent_impls(&code).into_iter().filter(|name| !own.contains(name)) {
            split
                .entry((path.iter().next().unwrap(), name.to_owned()))
                .or_insert_with(|| (path, Vec::new()))
                .1
                .push(place.to_string());
        }
    }
    for ((_, name), (path, places)) in split {
        add(path, Count::SplitTypes, format!("{name}: {}", places.join(", ")));
    }
    findings
}

/// The sentences of the comments in `text`.
fn sentences(text: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in text.lines() {
        match line.trim_start().strip_prefix("//") {
            Some(comment) => {
                let block = blocks.last_mut().unwrap();
                block.push_str(comment.trim_start_matches(['/', '!']).trim());
                block.push(' ');
            }
            None => blocks.push(String::new()),
        }
    }
    let sentences = blocks.iter().flat_map(|block| block.split(". ")).map(str::trim);
    sentences.filter(|sentence| !sentence.is_empty()).map(str::to_owned).collect()
}

fn first_word(sentence: &str) -> &str {
    sentence.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// Returns whether `sentence` has the words of `phrase` side by side. Both are in lower case.
fn has_phrase(sentence: &str, phrase: &str) -> bool {
    sentence.match_indices(phrase).any(|(at, _)| {
        let is_word = |c: char| c.is_alphanumeric();
        !sentence[..at].ends_with(is_word) && !sentence[at + phrase.len()..].starts_with(is_word)
    })
}

/// The functions with a body, each with its number of lines.
fn functions(code: &str) -> Vec<(&str, usize)> {
    let with_lines = |(name, rest)| Some((name, block(rest)?.lines().count() + signature(rest).lines().count() - 1));
    items(code, "fn").into_iter().filter_map(with_lines).collect()
}

/// The structs with named fields, each with their number.
fn structs(code: &str) -> Vec<(&str, usize)> {
    items(code, "struct").into_iter().filter_map(|(name, rest)| Some((name, fields(block(rest)?)))).collect()
}

/// Names of the structs and enums.
fn types(code: &str) -> BTreeSet<&str> {
    ["struct", "enum"].into_iter().flat_map(|keyword| items(code, keyword)).map(|(name, _)| name).collect()
}

/// Names of the types with methods of no trait.
fn inherent_impls(code: &str) -> BTreeSet<&str> {
    let headers = code.match_indices("\nimpl").filter_map(|(at, start)| code[at + start.len()..].split('{').next());
    let inherent = headers.filter(|header| !header.contains(" for "));
    let names = inherent.filter_map(|header| {
        let named = if header.starts_with('<') { after_generics(header) } else { header };
        let path = named.trim_start().split(|c: char| c == '<' || c.is_whitespace()).next()?;
        path.rsplit("::").next()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// The rest of `header` after the generics with which it begins.
fn after_generics(header: &str) -> &str {
    let mut depth = 0_usize;
    let end = header.char_indices().find(|(at, c)| {
        match c {
            '<' => depth += 1,
            '>' if !header[..*at].ends_with(['-', '=']) => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map_or("", |(end, _)| &header[end + 1..])
}

/// Each item with this `keyword`: its name, and the code from there.
fn items<'a>(code: &'a str, keyword: &str) -> Vec<(&'a str, &'a str)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let starts = code.match_indices(keyword).filter(|(at, _)| !code[..*at].ends_with(|c| is_name(c) || c == '#'));
    let rests = starts.filter_map(|(at, _)| code[at + keyword.len()..].strip_prefix(' '));
    let named = rests.map(|rest| (&rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())], rest));
    named.filter(|(name, _)| !name.is_empty()).collect()
}

/// The code of an item up to the bracket of its body, or to its end.
fn signature(rest: &str) -> &str {
    let mut depth = 0_usize;
    let end = rest.char_indices().find(|(_, c)| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && matches!(c, '{' | ';')
    });
    end.map_or(rest, |(end, _)| &rest[..end])
}

/// The body of an item, with its braces.
fn block(rest: &str) -> Option<&str> {
    let body = rest[signature(rest).len()..].strip_prefix('{').map(|_| &rest[signature(rest).len()..])?;
    let mut depth = 0_usize;
    let end = body.char_indices().find(|(_, c)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map(|(end, _)| &body[..=end])
}

/// Number of fields in the body of a struct.
fn fields(body: &str) -> usize {
    let (mut depth, mut fields, mut before) = (0_usize, 0, ' ');
    for (at, c) in body.char_indices() {
        match c {
            '{' | '(' | '[' | '<' => depth += 1,
            '>' if before == '-' => {}
            '}' | ')' | ']' | '>' => depth -= 1,
            // The colon of a path is one of two.
            ':' if depth == 1 && before != ':' && !body[at + 1..].starts_with(':') => fields += 1,
            _ => {}
        }
        before = c;
    }
    fields
}

#[test]
fn the_counts_find_what_they_are_for() {
    let code = "fn a() {\n    b([0; 2], || {\n    });\n}\nfn c(_: [u8; 2]);\nimpl X { const fn d(self) -> u8 { 1 } }";
    assert_eq!(functions(code), [("a", 4), ("d", 1)]);
    let code = "struct A { a: u8, pub b: std::io::Result<(u8, fn(u8) -> u8)>, }\nstruct B(u8);\nenum C { D { e: u8 } }";
    assert_eq!(structs(code), [("A", 2)]);
    assert_eq!(types(code), ["A", "B", "C"].into());
    let code = "\nimpl A {}\nimpl<F: Fn() -> B<u8>> C<F> {}\nimpl D for E {}\nimpl<T> F for G<T> {}";
    assert_eq!(inherent_impls(code), ["A", "C"].into());
    let code = "struct A {\n    #[cfg(test)]\n    a: u8,\n}\n#[cfg(test)]\nfn b<C, D>(c: C, d: D) {\n}\nfn e() {}";
    assert_eq!(functions(&without_tests(code)), [("e", 1)]);
    let text = "/// It waits. The\n/// rest follows. So\nfn a() {} // not at the start\n    // Whose is this";
    assert_eq!(sentences(text), ["It waits", "The rest follows", "So", "Whose is this"]);
    assert!(has_phrase("begins anew, always", "anew") && !has_phrase("renews a newt", "new"));

    let files = [
        ("a/b.rs", "//! One file.\npub struct B { b: u8 }\nimpl B {}\n"),
        ("a/c.rs", "use super::b::B;\n\nimpl B {}\n\n#[cfg(test)]\nmod tests;\n"),
        ("a/c/tests.rs", "// Under way.\nstruct C;\n"),
    ];
    let files: Vec<_> = files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
    let found: Vec<_> = findings(&files).into_iter().map(|(folder, count, _)| (folder, count)).collect();
    let expected = [Count::FirstWords, Count::ArchaicWords, Count::SplitTypes].map(|count| ("a".to_owned(), count));
    assert_eq!(found, expected);
}

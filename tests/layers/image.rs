//! The image builds: everything that it compiles is in the build context, and is copied by `deploy/Dockerfile`.
//!
//! Neither a Docker daemon nor a compiler is needed for that: the rules of `Dockerfile.dockerignore` are applied to the
//! repository, and the COPY lines to what they leave.

use std::{
    env, fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use super::{sources, test_modules};
use crate::sources::without_tests;

/// Folders that are not part of a checkout.
const NOT_CHECKED_OUT: [&str; 2] = [".git", "target"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the repository, by its path there.
fn files() -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![root().to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let short = path.strip_prefix(root()).unwrap().to_owned();
            if path.is_dir() {
                if !NOT_CHECKED_OUT.iter().any(|name| short == Path::new(name)) {
                    folders.push(path);
                }
            } else {
                files.push(short);
            }
        }
    }
    files
}

/// Whether the rules of a `.dockerignore` leave `path`. The last rule that matches it, or one of its folders, decides.
fn is_in_context(rules: &str, path: &Path) -> bool {
    let mut rules = rules.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let last = rules.rfind(|rule| matches(rule.trim_start_matches('!'), path));
    last.is_none_or(|rule| rule.starts_with('!'))
}

/// A pattern without wildcards, or `*` for every name: there are no others here.
fn matches(pattern: &str, path: &Path) -> bool {
    assert!(pattern == "*" || !pattern.contains(['*', '?', '[']), "this test does not understand {pattern}");
    pattern == "*" || path.starts_with(pattern.trim_matches('/'))
}

/// Sources and target folder of each COPY line of the first stage.
fn copies(dockerfile: &str) -> Vec<(Vec<&str>, &str)> {
    let lines =
        dockerfile.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with("--from"));
    let parts = lines.map(|line| line.split_whitespace().filter(|part| !part.starts_with("--")).collect::<Vec<_>>());
    parts.map(|mut parts| (parts.pop().unwrap(), parts)).map(|(to, from)| (from, to)).collect()
}

/// Copies the files of the image's build to `to`.
fn copy_to(to: &Path) {
    let rules = fs::read_to_string(root().join("deploy/Dockerfile.dockerignore")).unwrap();
    let dockerfile = fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    let context: Vec<PathBuf> = files().into_iter().filter(|path| is_in_context(&rules, path)).collect();
    for (from, folder) in copies(&dockerfile) {
        for source in from {
            let copied: Vec<_> = context.iter().filter(|path| path.starts_with(source)).collect();
            assert!(!copied.is_empty(), "COPY {source}: not in the context, see Dockerfile.dockerignore");
            for path in copied {
                // The content of a folder is copied, and a file with its name.
                let inside = path.strip_prefix(source).unwrap();
                let name = if inside.as_os_str().is_empty() { Path::new(path.file_name().unwrap()) } else { inside };
                let target = to.join(folder).join(name);
                fs::create_dir_all(target.parent().unwrap()).unwrap();
                fs::copy(root().join(path), target).unwrap();
            }
        }
    }
}

/// The files that the code at `path` (below `src/`) includes.
fn included(path: &Path, text: &str) -> Vec<PathBuf> {
    let code = without_tests(text);
    let calls = ["include_str!(\"", "include_bytes!(\"", "include!(\""];
    let rests = calls.iter().flat_map(|call| code.match_indices(call).map(|(at, _)| &code[at + call.len()..]));
    let names: Vec<&str> = rests.map(|rest| rest.split('"').next().unwrap()).collect();
    names.into_iter().map(|name| plain(&Path::new("src").join(path).with_file_name("").join(name))).collect()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, component| {
        match component {
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
        plain
    })
}

#[test]
fn all_that_the_image_compiles_is_copied_into_it() {
    // tests/deploy names a folder, and compiles its content afterwards.
    let kept = env::var_os("ANDANTE_IMAGE_SOURCES").map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let to = kept.as_deref().unwrap_or(folder.path());
    copy_to(to);
    assert!(to.join(".cargo/config.toml").exists(), "jemalloc's settings");

    // `cargo tree` reads the manifest, its targets and the lock file, and the dependencies for this machine.
    let tree = ["tree", "--locked", "--offline", "--edges", "normal,build"];
    let output = Command::new(env!("CARGO")).args(tree).current_dir(to).output().unwrap();
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));

    let sources = sources();
    let tests: Vec<PathBuf> = sources.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    let code = sources.iter().filter(|(path, _)| !tests.iter().any(|tests| path.with_extension("").starts_with(tests)));
    let wanted: Vec<PathBuf> = code.flat_map(|(path, text)| included(path, text)).collect();
    assert!(wanted.iter().any(|path| path.starts_with("config/presets")), "{wanted:?}");
    let missing: Vec<_> = wanted.iter().filter(|path| !to.join(path).exists()).collect();
    assert!(missing.is_empty(), "included, and not in the image: {missing:?}");
}

#[test]
fn the_last_rule_that_matches_decides() {
    let rules = "*\n!src\n!config/presets\nsrc/tests\n";
    for (path, is_in) in
        [("src/a.rs", true), ("config/presets/a.toml", true), ("config/a.toml", false), ("src/tests/a.rs", false)]
    {
        assert_eq!(is_in_context(rules, Path::new(path)), is_in, "{path}");
    }
}

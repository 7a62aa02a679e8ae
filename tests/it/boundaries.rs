//! Checks the sources: the boundaries between layers, and the readability rules.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use lockwheel_engine::command::CommandTable;
use lockwheel_engine::settings::{CompatVersion, Mode};

/// Names that a layer must not use. `docs/architecture.md` gives the reasons.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("resp/src", &["tokio", "std::net", "std::fs", "mlua"]),
    ("scripting/src", &["tokio", "std::net"]),
    (
        "server/engine/src",
        &[
            "tokio",
            "std::thread",
            "std::net",
            "std::fs",
            "Instant",
            "SystemTime",
            "HashMap",
            "HashSet",
            "RandomState",
        ],
    ),
    ("server/engine/src/store", &["Engine", "Sessions", "sessions"]),
];

/// The crates of the project that each crate may depend on, tests apart. The compiler keeps a crate
/// from naming any other.
const LAYERS: &[(&str, &[&str])] = &[
    ("resp", &[]),
    ("scripting", &["lockwheel-resp"]),
    ("server/engine", &["lockwheel-defects", "lockwheel-resp", "lockwheel-scripting"]),
    ("server/defects", &[]),
    ("server/log", &["lockwheel-defects"]),
    ("server/raft", &["lockwheel-defects", "lockwheel-log"]),
    (
        "server/lockwheel",
        &[
            "lockwheel-defects",
            "lockwheel-engine",
            "lockwheel-log",
            "lockwheel-raft",
            "lockwheel-resp",
        ],
    ),
    // It uses no code of the server that it judges.
    ("server/compat", &[]),
    // Neither does it.
    ("server/prove", &["lockwheel-compat"]),
    // A program that takes locks does not compile a server.
    ("packages/rust/locks", &[]),
    (
        "server/cli",
        &[
            "lockwheel",
            "lockwheel-compat",
            "lockwheel-engine",
            "lockwheel-log",
            "lockwheel-prove",
            "lockwheel-resp",
        ],
    ),
];

/// The only folder with unsafe code: calls from and to Lua.
const UNSAFE_FOLDER: &str = "scripting/src/bridge/";

const LINE_COLUMNS: usize = 100;
const FUNCTION_LINES: usize = 70;

/// Functions that may be longer: tables of cases. The list may only shrink.
const LONG_FUNCTIONS: &[(&str, &str)] = &[
    ("server/engine/src/testing/model.rs", "actions"),
    ("server/engine/src/testing/model.rs", "command"),
    ("tests/tools/src/tiers/main.rs", "compare_tiers"),
    ("tests/tools/src/tiers/oracle.rs", "compare"),
    ("tests/src/tiers/grammar.rs", "tree"),
    ("tests/src/tiers/grammar.rs", "write"),
];

/// Files with longer lines: cases that are easier to read on one line. The list may only shrink.
const WIDE_FILES: &[&str] = &["tests/src/tiers/builtins.rs", "tests/src/tiers/grammar.rs"];

/// Names of commands in the engine outside of the families' files that are not those of commands,
/// and why. Code that treats commands differently uses their rows, so that a new command needs a
/// change in its family's file only. The list may only shrink.
const NOT_COMMANDS: &[(&str, &[&str], &str)] = &[
    ("server/engine/src/acl/log.rs", &["auth", "command"], "reasons in the log"),
    ("server/engine/src/acl/rules.rs", &["reset"], "a rule"),
    ("server/engine/src/engine/users.rs", &["multi"], "a context in the log"),
    ("server/engine/src/command/row.rs", &["cluster", "pubsub", "sentinel", "set"], "groups"),
    ("server/engine/src/engine/locks.rs", &["del"], "an event"),
    ("server/engine/src/run/context/writes.rs", &["del"], "an event"),
    ("server/engine/src/instruments/faults/rule.rs", &["client", "command"], "conditions"),
    ("server/engine/src/statistics/latency.rs", &["command"], "a kind of event"),
    ("server/engine/src/locks/meaning.rs", &["get", "script"], "an option, an argument"),
    (
        "server/engine/src/locks/words.rs",
        &["config", "exists", "reset", "set"],
        "words of keys and values",
    ),
    ("server/engine/src/sessions/tracking.rs", &["client"], "Redis spares all its subcommands"),
    ("server/engine/src/settings/sentinel.rs", &["monitor"], "a directive"),
    ("server/engine/src/settings/directive.rs", &["save"], "a directive"),
    (
        "server/engine/src/settings/without_effect.rs",
        &["replicaof", "save", "slaveof", "swapdb"],
        "directives",
    ),
    (
        "server/engine/src/settings/types.rs",
        &["cluster", "debug", "pubsub", "sentinel"],
        "values of directives",
    ),
    ("server/engine/src/settings/value.rs", &["save"], "a directive"),
    ("server/engine/src/store/value.rs", &["set"], "a type"),
];

/// The first folder of a path on a developer's machine.
const PRIVATE_ROOTS: &[&str] = &["home", "Users", "root", "work"];

pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

#[test]
fn layers_do_not_use_forbidden_names() {
    let mut offences = Vec::new();
    for (folder, words) in FORBIDDEN {
        for source in below(folder) {
            for (number, line) in code(&source) {
                let found = words.iter().filter(|word| names(line, word));
                offences.extend(found.map(|word| format!("{}:{number}: {word}", source.path)));
            }
        }
    }
    assert_eq!(offences, Vec::<String>::new());
}

#[test]
fn crates_depend_only_on_the_layers_below() {
    for (package, allowed) in LAYERS {
        let manifest = read(&root().join(package).join("Cargo.toml"));
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or_default();
        let dependencies = dependencies.split("\n[").next().unwrap_or_default();
        let named = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
        let ours: Vec<_> = named.filter(|name| name.starts_with("lockwheel")).collect();
        assert_eq!(ours, *allowed, "{package}");
    }
}

#[test]
fn unsafe_code_is_only_in_the_bridge() {
    let mut offences = Vec::new();
    let shipped =
        ["resp/src", "scripting/src", "server", "packages"].map(below).into_iter().flatten();
    for source in shipped.filter(|source| !source.path.starts_with(UNSAFE_FOLDER)) {
        // A word of the content policy of pages.
        let is_unsafe = |line: &str| names(&line.replace("'unsafe-inline'", ""), "unsafe");
        let found = code(&source).filter(|(_, line)| is_unsafe(line));
        offences.extend(found.map(|(number, _)| format!("{}:{number}", source.path)));
    }
    assert_eq!(offences, Vec::<String>::new());
    for crate_root in ["resp/src/lib.rs", "server/lockwheel/src/lib.rs"] {
        let text = read(&root().join(crate_root));
        assert!(text.contains("#![forbid(unsafe_code)]"), "{crate_root}");
    }
}

#[test]
fn engine_has_no_public_field_and_only_the_listed_methods() {
    let library = read(&root().join("server/engine/src/engine/core.rs"));
    let (_, fields) = library.split_once("pub struct Engine {").expect("the engine");
    let (fields, _) = fields.split_once("\n}").expect("its end");
    assert!(!fields.contains("\n    pub "), "{fields}");

    let inputs = read(&root().join("server/engine/src/engine/inputs.rs"));
    let listed = inputs.lines().take_while(|line| line.starts_with("//!"));
    let listed = listed.flat_map(|line| line.split("[`Engine::").skip(1));
    let listed: Vec<_> = listed.filter_map(|link| link.split('`').next()).collect();
    let mut public = Vec::new();
    for source in below("server/engine/src") {
        let mut in_engine = false;
        for (_, line) in code(&source) {
            in_engine = (in_engine || line.starts_with("impl Engine {")) && line != "}";
            let method = line.strip_prefix("    pub fn ").filter(|_| in_engine);
            public.extend(method.and_then(|name| name.split(['(', '<']).next()).map(str::to_owned));
        }
    }
    public.sort();
    let mut expected = listed;
    expected.sort_unstable();
    assert_eq!(public, expected);
}

#[test]
fn clippy_forbids_reading_the_clock() {
    let settings = read(&root().join("clippy.toml"));
    for method in ["std::time::Instant::now", "std::time::SystemTime::now", "std::thread::sleep"] {
        assert!(settings.contains(method), "clippy.toml does not disallow {method}");
    }
    let lax = |folder: &str| {
        let lax = below(folder).into_iter().filter(|it| it.text.contains("disallowed_methods"));
        lax.map(|source| source.path).collect::<Vec<_>>()
    };
    assert_eq!(lax("server/engine/src"), Vec::<String>::new());
    assert_eq!(lax("server/compat/src"), ["server/compat/src/time.rs"]);
    assert_eq!(lax("server/prove/src"), ["server/prove/src/clock.rs"]);
    assert_eq!(lax("packages/rust/locks"), ["packages/rust/locks/src/lock.rs"]);
}

#[test]
fn files_begin_with_a_description_and_have_short_ascii_lines() {
    let mut offences = Vec::new();
    for source in all() {
        if !source.text.starts_with("//! ") {
            offences.push(format!("{}: no `//!` line on top", source.path));
        }
        let wide_allowed = WIDE_FILES.contains(&source.path.as_str());
        for (number, line) in source.text.lines().enumerate() {
            let place = || format!("{}:{}", source.path, number + 1);
            if line.chars().count() > LINE_COLUMNS && !wide_allowed {
                offences.push(format!("{}: more than {LINE_COLUMNS} columns", place()));
            }
            if !line.is_ascii() {
                offences.push(format!("{}: not ASCII", place()));
            }
        }
    }
    assert_eq!(offences, Vec::<String>::new());
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for source in all() {
        for (name, length) in functions(&source.text) {
            let known = LONG_FUNCTIONS.contains(&(source.path.as_str(), name.as_str()));
            if (length > FUNCTION_LINES) != known {
                long.push(format!("{}: {name} has {length} lines", source.path));
            }
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn no_file_names_a_path_of_a_developers_machine() {
    let mut offences = Vec::new();
    for path in files(&root()) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for private in PRIVATE_ROOTS {
            for (number, line) in text.lines().enumerate() {
                if line.contains(&format!("/{private}/")) && !line.contains("://") {
                    offences.push(format!("{}:{}", relative(&path), number + 1));
                }
            }
        }
    }
    assert_eq!(offences, Vec::<String>::new());
}

/// The package registry is a setting of each machine.
#[test]
fn no_suite_names_a_package_registry() {
    let forbidden = |name: &str| match name {
        "package-lock.json" => ["\"resolved\""].as_slice(),
        "requirements.txt" => &["--index-url", "--extra-index-url", "://"],
        "pom.xml" => &["<repository>", "<pluginRepository>", "<mirror>"],
        "go.mod" => &["=> /", "://"],
        _ => &[],
    };
    let mut offences = Vec::new();
    let folders = ["tests/clients", "tests/compatibility", "tests/kills"];
    for path in folders.iter().flat_map(|folder| files(&root().join(folder))) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let words = forbidden(&name);
        let text = if words.is_empty() { String::new() } else { read(&path) };
        let found = words.iter().filter(|word| text.contains(**word));
        offences.extend(found.map(|word| format!("{}: {word}", relative(&path))));
    }
    assert_eq!(offences, Vec::<String>::new());
}

#[test]
fn engine_names_commands_only_in_the_files_of_their_families() {
    let mut commands = BTreeSet::new();
    for &version in CompatVersion::ALL {
        for mode in [Mode::Standalone, Mode::Sentinel] {
            let entries = CommandTable::of(mode, version).entries().iter();
            commands.extend(entries.map(|entry| entry.full_name.as_str()));
        }
    }
    let is_checked = |source: &Source| {
        let name = source.path.strip_prefix("server/engine/src/").unwrap_or_default();
        !["commands/", "testing/"].iter().any(|folder| name.starts_with(folder))
            && !name.ends_with("tests.rs")
    };
    let mut found = BTreeSet::new();
    for source in below("server/engine/src").into_iter().filter(is_checked) {
        let product = source.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let source = Source { text: product.to_owned(), ..source };
        for (_, line) in code(&source) {
            let literals = line.split('"').skip(1).step_by(2).map(str::to_lowercase);
            let named = literals.filter(|literal| commands.contains(&**literal));
            found.extend(named.map(|name| (source.path.clone(), name)));
        }
    }
    let allowed = NOT_COMMANDS.iter().flat_map(|(path, names, _)| {
        names.iter().map(|name| ((*path).to_owned(), (*name).to_owned()))
    });
    assert_eq!(found, allowed.collect());
}

#[test]
fn rules_find_violations() {
    assert!(names("use std::collections::{BTreeMap, HashMap};", "HashMap"));
    assert!(!names("struct MyHashMap;", "HashMap"));
    assert!(!names("#![forbid(unsafe_code)]", "unsafe"));
    let source = Source { path: String::new(), text: "a // tokio\n/// tokio\nb".to_owned() };
    assert_eq!(code(&source).collect::<Vec<_>>(), [(1, "a "), (2, ""), (3, "b")]);
    let text = "fn a() {\n    x\n}\nimpl B {\n    pub(crate) const fn c() {\n    }\n}\n";
    assert_eq!(functions(text), [("a".to_owned(), 3), ("c".to_owned(), 2)]);
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn relative(path: &Path) -> String {
    let path = path.strip_prefix(root()).expect("below the root");
    path.to_string_lossy().replace('\\', "/")
}

/// Every Rust file of the workspace.
fn all() -> Vec<Source> {
    let folders = ["resp", "scripting", "server", "packages", "tests", "benches"];
    folders.iter().flat_map(|folder| below(folder)).collect()
}

pub(crate) fn below(folder: &str) -> Vec<Source> {
    let paths = files(&root().join(folder)).into_iter();
    let rust = paths.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    rust.map(|path| Source { path: relative(&path), text: read(&path) }).collect()
}

/// Every file below a folder except hidden files, build output and findings of fuzzers.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let made = ["target", "corpus", "artifacts", "node_modules", "vendor", "__pycache__"];
        if name.starts_with('.') || made.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// The lines and their numbers, without comments.
fn code(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.text.lines().enumerate().map(|(index, line)| {
        let end = line.find("//").unwrap_or(line.len());
        (index + 1, &line[..end])
    })
}

/// Whether `line` contains `word` as a whole identifier.
fn names(line: &str, word: &str) -> bool {
    let belongs = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        !before.is_some_and(belongs) && !after.is_some_and(belongs)
    })
}

/// The names and lengths of functions. A function ends at a closing brace with its indentation.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let bare = line.trim_start();
        let Some((head, tail)) = bare.split_once("fn ") else { continue };
        let qualifier = |word: &str| {
            word.starts_with("pub") || ["const", "async", "unsafe", "extern"].contains(&word)
        };
        if !head.split_whitespace().all(qualifier) {
            continue;
        }
        let closing = format!("{}}}", " ".repeat(line.len() - bare.len()));
        let length = lines[start..].iter().position(|line| *line == closing);
        let name = tail.split(['(', '<']).next().unwrap_or_default();
        if let Some(length) = length.filter(|_| !line.ends_with('}') && !line.ends_with(';')) {
            found.push((name.to_owned(), length + 1));
        }
    }
    found
}

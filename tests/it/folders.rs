//! Checks the folders inside the crates: what each may use, and that each begins with a page.

use std::collections::{BTreeMap, BTreeSet};

use super::boundaries::{below, files, read, relative, root};

/// A crate whose folders are layers.
struct Layers {
    sources: &'static str,
    /// The folders and files at its top, from the lowest layer to the highest. Each uses only
    /// those before it, apart from `upward`.
    order: &'static [&'static str],
    /// What a layer uses of a higher one, and why. The list may only shrink.
    upward: &'static [(&'static str, &'static str, &'static str)],
    /// Names at the root of the crate, and the layers that define them.
    exports: &'static [(&'static str, &'static str)],
}

const METHODS: &str = "adds methods to `Engine`";

const LAYERS: &[Layers] = &[
    Layers {
        sources: "server/engine/src",
        order: &[
            "glob",
            "limits",
            "random",
            "timing",
            "error",
            "store",
            "settings",
            "acl",
            "command",
            "statistics",
            "sessions",
            "locks",
            "replication",
            "durability",
            "instruments",
            "run",
            "commands",
            "engine",
            "testing",
        ],
        upward: &[
            ("acl", "command", "rules name commands; rows name kinds of channels"),
            ("acl", "run", "conditions of gates follow from a user"),
            ("command", "commands", "the table of rows consists of the families"),
            ("command", "run", "a row has its handler, and handlers take a `Context`"),
            ("command", "statistics", "the times of each command"),
            ("commands", "engine", "what a handler shows of the whole server"),
            ("durability", "engine", METHODS),
            ("instruments", "engine", METHODS),
            ("instruments", "run", "see commands before and after they run"),
            ("locks", "commands", "scripts are recognised by the commands that they name"),
            ("locks", "engine", "see the keys of a command after it has run"),
            ("locks", "run", "see commands after they have run"),
            ("replication", "durability", "ends the waits and the guard of a former leader"),
            ("replication", "engine", METHODS),
            ("replication", "instruments", "the shadow follows as well"),
            ("replication", "run", "requests are held by a gate"),
            ("run", "engine", METHODS),
            ("sessions", "durability", "clients that wait for the log are waiting clients"),
            ("sessions", "engine", METHODS),
            ("sessions", "replication", "held requests belong to clients"),
            ("settings", "acl", "users of the configuration"),
            ("statistics", "engine", METHODS),
            ("statistics", "sessions", "the sizes of clients' buffers"),
        ],
        exports: &[
            ("Delivery", "sessions"),
            ("Engine", "engine"),
            ("Flow", "engine"),
            ("RequestOutcome", "engine"),
            ("Stats", "engine"),
        ],
    },
    Layers {
        sources: "server/lockwheel/src",
        order: &[
            "limits",
            "sync",
            "error",
            "bounded_file",
            "seeds",
            "clock",
            "process_usage",
            "tls",
            "durability",
            "net",
            "host",
            "replication",
            "in_process",
            "instruments",
            "server",
            "simulation",
        ],
        upward: &[
            ("clock", "simulation", "a simulated machine has clocks of its own"),
            ("durability", "host", "a log ends its host, and snapshots read the engine"),
            ("durability", "net", "the gate wakes connections whose output is released"),
            ("durability", "simulation", "a simulated server writes when the simulation says so"),
            ("host", "replication", "asks the replicated log whether this server leads"),
            ("net", "host", "connections run requests"),
            ("net", "simulation", "a simulated connection is a pipe"),
            ("replication", "simulation", "a simulated node has no other threads to wait for"),
        ],
        exports: &[],
    },
    Layers {
        sources: "server/compat/src",
        order: &[
            "random",
            "words",
            "time",
            "interrupt",
            "wire",
            "judge",
            "report",
            "cases",
            "recipes",
            "properties",
            "suite",
            "fuzz",
        ],
        upward: &[],
        exports: &[],
    },
    Layers {
        sources: "benches/comparison/src/compare",
        order: &["progress", "measure", "options", "workloads", "discovery", "report"],
        upward: &[],
        exports: &[],
    },
];

/// Crates without circles: no file imports another one that imports it, directly or by way of
/// others.
const WITHOUT_CIRCLES: &[&str] =
    &["server/log/src", "server/compat/src", "server/cli/src", "benches/comparison/src/compare"];

/// Lines of the page at the beginning of a folder.
const PAGE_LINES: usize = 60;

/// Entries at the top of a crate.
const ENTRIES_MAX: usize = 20;

#[test]
fn layers_use_only_lower_ones() {
    for layers in LAYERS {
        let mut found = BTreeSet::new();
        for source in below(layers.sources) {
            let path = source.path.strip_prefix(layers.sources).unwrap_or_default();
            let from = path.trim_start_matches('/').split(['/', '.']).next().unwrap_or_default();
            if matches!(from, "lib" | "main") || path.ends_with("tests.rs") {
                continue;
            }
            for to in used(product(&source.text), layers.exports) {
                if to != from && place(layers, from) < place(layers, &to) {
                    found.insert((from.to_owned(), to));
                }
            }
        }
        let listed = layers.upward.iter().map(|(from, to, _)| ((*from).into(), (*to).into()));
        assert_eq!(found, listed.collect(), "{}", layers.sources);
    }
}

#[test]
fn files_do_not_import_each_other() {
    for sources in WITHOUT_CIRCLES {
        let mut left = imports(sources);
        let mut count = left.len() + 1;
        while left.len() < count {
            count = left.len();
            let names: BTreeSet<String> = left.keys().cloned().collect();
            left.retain(|_, imported| !imported.is_disjoint(&names));
        }
        assert!(left.is_empty(), "{sources}: {left:#?}");
    }
}

#[test]
fn crates_have_few_entries_at_their_top() {
    for layers in LAYERS {
        assert!(layers.order.len() <= ENTRIES_MAX, "{}", layers.sources);
    }
}

#[test]
fn folders_begin_with_a_page() {
    let mut offences = Vec::new();
    for layers in LAYERS {
        for path in files(&root().join(layers.sources)) {
            let lines = read(&path).lines().count();
            if path.ends_with("mod.rs") && lines > PAGE_LINES {
                offences.push(format!("{}: {lines} lines", relative(&path)));
            }
        }
    }
    assert_eq!(offences, Vec::<String>::new());
}

/// The position of a layer in the order.
fn place(layers: &Layers, name: &str) -> usize {
    let place = layers.order.iter().position(|layer| *layer == name);
    place.unwrap_or_else(|| panic!("{}: {name} is in no layer", layers.sources))
}

/// A source without its tests at the end.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

/// The files that each file of a crate imports. Pages are left out: they name all of their folder.
fn imports(sources: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = BTreeMap::new();
    for source in below(sources) {
        let path = source.path.strip_prefix(sources).and_then(|path| path.strip_suffix(".rs"));
        let path = path.unwrap_or_default().trim_start_matches('/').replace('/', "::");
        let name = path.rsplit("::").next().unwrap_or_default();
        if !matches!(name, "mod" | "lib" | "main" | "tests") {
            files.insert(path, source.text);
        }
    }
    let imported = |(path, text): (&String, &String)| {
        let folder = path.rsplit_once("::").map_or("", |(folder, _)| folder);
        let mut found = BTreeSet::new();
        for import in product(text).split("\nuse ").skip(1) {
            let import = import.split(';').next().unwrap_or_default().replace(['\n', ' '], "");
            let (begin, list) = import.split_once('{').unwrap_or((&import, ""));
            for name in list.trim_end_matches('}').split(',') {
                let whole = format!("{begin}{name}");
                let mut wanted = match whole.split_once("::") {
                    Some(("crate", rest)) => rest.to_owned(),
                    Some(("super", rest)) => {
                        format!("{folder}::{rest}").trim_start_matches("::").to_owned()
                    }
                    _ => continue,
                };
                while !files.contains_key(&wanted) && wanted.contains("::") {
                    wanted.truncate(wanted.rfind("::").unwrap_or_default());
                }
                found.insert(wanted);
            }
        }
        found.remove(path);
        (path.clone(), found)
    };
    files.iter().map(imported).collect()
}

/// The layers whose names a source uses.
fn used(product: &str, exports: &[(&str, &str)]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for line in product.lines() {
        let line = line.split("//").next().unwrap_or_default();
        for path in line.split("crate::").skip(1) {
            let names = path
                .strip_prefix('{')
                .map_or(path, |list| list.split('}').next().unwrap_or_default());
            let names: Vec<&str> =
                if path.starts_with('{') { names.split(", ").collect() } else { vec![names] };
            for name in names {
                let end = name.find(|it: char| !it.is_alphanumeric() && it != '_');
                let name = &name[..end.unwrap_or(name.len())];
                let export = exports.iter().find(|(export, _)| *export == name);
                used.insert(export.map_or(name, |(_, layer)| *layer).to_owned());
            }
        }
    }
    used
}

/// A rule whose defect cannot be switched on is not tested, and neither is one that nothing asks
/// for. The compiler finds a name that is declared twice or not at all.
#[test]
fn every_defect_is_in_the_code() {
    let declared = read(&root().join("server/defects/src/lib.rs"));
    let declared = declared.lines().filter_map(|line| line.trim().split_once(" = \""));
    let is_name = |name: &str| name.chars().all(char::is_alphanumeric);
    let declared = declared.map(|(name, _)| name.to_owned()).filter(|name| is_name(name));
    let declared: BTreeSet<String> = declared.collect();
    assert!(declared.len() > 80, "{declared:?}");
    let mut used = BTreeSet::new();
    for source in below("server").into_iter().filter(|it| !it.path.contains("/defects/")) {
        for begin in ["defect!(", "Defect::"] {
            let names = source.text.split(begin).skip(1);
            let end = |it: char| !it.is_alphanumeric();
            used.extend(names.filter_map(|it| it.split(end).next()).map(str::to_owned));
        }
    }
    let unused: Vec<_> = declared.difference(&used).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

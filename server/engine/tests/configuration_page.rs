//! Generates `docs/configuration.md` from the table of directives and compares it with the page.
//! With `LOCKWHEEL_WRITE_DOCS` set, the page is written instead.

use std::fmt::Write;
use std::fs;

use lockwheel_engine::settings::{self, FORBIDDEN, Mutability, Row, Usage, ValueKind};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
/// Names the variable with which the page is written.
const WRITE: &str = "LOCKWHEEL_WRITE_DOCS";

const BEGINNING: &str = r#"# Configuration

<!-- Generated from server/engine/src/settings/directive.rs. To write this page anew:
     LOCKWHEEL_WRITE_DOCS=1 cargo test -p lockwheel-engine --test configuration_page -->

Lockwheel has the directives of Redis 7.2, with their names, values and defaults, and some of its
own. A directive is set, from the lowest to the highest priority:

1. in a configuration file in the form of `redis.conf`, named as the first argument of the program;
   `-` reads more directives from standard input;
2. by an environment variable `LOCKWHEEL_<DIRECTIVE>`, with underscores in place of hyphens:
   `LOCKWHEEL_MAXMEMORY=1gb`, `LOCKWHEEL_IO_THREADS=2`;
3. by an option on the command line: `--maxmemory 1gb`;
4. while the server runs, by `CONFIG SET`, if the directive can be changed.

```console
$ lockwheel cli CONFIG SET notify-keyspace-events Ex
OK
$ lockwheel cli CONFIG GET notify-keyspace-events
1) "notify-keyspace-events"
2) "xE"
$ lockwheel cli CONFIG SET port 7000
(error) ERR CONFIG SET failed (possibly related to argument 'port') - can't set immutable config
```

A file may include others with `include <path>`. The server never writes its configuration file:
`CONFIG REWRITE` is refused.

**Values.** A *size* is a number of bytes with an optional unit: `1k` is 1000, `1kb` is 1024, and
`m`, `mb`, `g` and `gb` are formed in the same way. A *span* of time is a number with a unit, or
several: `250ms`, `30s`, `1.5h`, `1h30m`. Text that contains spaces is quoted as in `redis.conf`.

**Change** says whether `CONFIG SET` can change the directive: *yes*, *no* (only at the start), or
*protected* (only with `enable-protected-configs`).
"#;

#[test]
fn page_is_generated_from_the_table() {
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        fs::write(PAGE, &page).expect("the page can be written");
    }
    let written = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "docs/configuration.md is outdated: run this test with {WRITE}=1");
}

fn page() -> String {
    let mut page = BEGINNING.to_owned();
    let is_used = |usage| matches!(usage, Usage::Used(_) | Usage::Process);
    section(&mut page, "Directives with an effect", "", is_used);
    section(
        &mut page,
        "Accepted without effect",
        "The server checks and keeps these values and returns them with `CONFIG GET`. Nothing \
         depends on them; the last column says what they mean in Redis.",
        |usage| matches!(usage, Usage::Accepted),
    );
    section(
        &mut page,
        "Persistence",
        "Without `appendonly yes`, these have no effect: at the start any value is accepted and \
         dropped, with a warning in the log, since programs that start a server pass them; `CONFIG \
         SET` accepts the default only.",
        |usage| matches!(usage, Usage::NeedsLog),
    );
    section(
        &mut page,
        "Not supported",
        "Only the default is accepted. Any other value would promise a protection or a role that \
         the server does not have: it stops the server at its start, and `CONFIG SET` refuses it.",
        |usage| matches!(usage, Usage::Unsupported),
    );
    let forbidden: Vec<String> = FORBIDDEN.iter().map(|name| format!("`{name}`")).collect();
    let _ = write!(
        page,
        "\nThe server does not start with {}. Directives of other versions of Redis and of Valkey \
         are skipped, with a warning in the log.\n",
        forbidden.join(", ")
    );
    page
}

fn section(page: &mut String, title: &str, text: &str, is_in: impl Fn(Usage) -> bool) {
    let _ = write!(page, "\n## {title}\n\n");
    if !text.is_empty() {
        let _ = write!(page, "{text}\n\n");
    }
    *page += "| Directive | Values | Default | Change | Purpose |\n|---|---|---|---|---|\n";
    for directive in settings::rows().filter(|directive| is_in(directive.usage)) {
        row(page, directive);
    }
}

fn row(page: &mut String, directive: &Row) {
    let alias = directive.alias.map(|alias| format!(" (formerly `{alias}`)")).unwrap_or_default();
    let default = match directive.default {
        "" => String::new(),
        text => format!("`{text}`"),
    };
    let change = match directive.mutability {
        Mutability::Live => "yes",
        Mutability::Protected => "protected",
        Mutability::AtStart | Mutability::Fixed => "no",
    };
    let (name, values, doc) = (directive.name, values(directive.kind), directive.doc);
    let _ = writeln!(page, "| `{name}`{alias} | {values} | {default} | {change} | {doc} |");
}

/// The values that a kind accepts.
fn values(kind: ValueKind) -> String {
    let names = |names: &[&str]| {
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        quoted.join(", ")
    };
    match kind {
        ValueKind::Bool => "`yes`, `no`".into(),
        ValueKind::Int(min, max)
        | ValueKind::Seconds(min, max)
        | ValueKind::Milliseconds(min, max) => {
            match max == i64::from(i32::MAX) || max == i64::MAX {
                true => format!("integer from {min}"),
                false => format!("integer from {min} to {max}"),
            }
        }
        ValueKind::Frequency => "integer from 0".into(),
        ValueKind::Octal(max) => format!("octal number up to {max:o}"),
        ValueKind::Memory(0, _) => "size".into(),
        ValueKind::Memory(min, _) => format!("size from {min}"),
        ValueKind::MemoryOrPercent => "size, or percentage of `maxmemory`".into(),
        ValueKind::Span => "span".into(),
        ValueKind::Choice(choices) => names(choices),
        ValueKind::Choices(choices) => format!("any of {}", names(choices)),
        ValueKind::Text => "text".into(),
        ValueKind::FileName(_) => "file name".into(),
        ValueKind::Words => "words".into(),
        ValueKind::Addresses => "addresses".into(),
        ValueKind::HostAndPort => "host and port".into(),
        ValueKind::SavePoints => "pairs of seconds and changes".into(),
        ValueKind::Percentiles => "numbers from 0 to 100".into(),
        ValueKind::OomScores => "three numbers from -2000 to 2000".into(),
        ValueKind::Events => "letters of event classes".into(),
        ValueKind::BufferLimits => "class, hard limit, soft limit, seconds; repeated".into(),
    }
}

//! Every command in the documentation is executed: the fenced `sh` and `console` blocks of the
//! README, of `docs/` and of the pages beside the README, and the steps with `run: |` of `yaml`
//! blocks.
//!
//! Each page has its own server, started for tests, and an empty folder in which its blocks run in
//! order, beside a link to the checkout (`../lockwheel`). Port 6379 in a block is replaced by the
//! port of that server, and port 6380 by a free one. A `console` block must print the text below
//! each `$` line, in which `...` matches any text within a line and, alone on a line, any number of
//! lines. `NOT_RUN` lists the blocks that cannot run here.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lockwheel::{Reply, Server};
use lockwheel_engine::command::argument::Argument;
use lockwheel_engine::command::{CommandTable, Flags};
use lockwheel_engine::settings::{CompatVersion, Mode};
use lockwheel_tests::daemon::{self, Daemon, Folder};
use lockwheel_tests::left_out;
use lockwheel_tests::process::eventually;
use lockwheel_tests::redis_server::free_port;

use crate::boundaries::root;

/// The treatment of a block that is not run as it is.
#[derive(Debug, PartialEq)]
enum Instead {
    /// It starts a server, which the test waits for and ends.
    Serves,
    /// It builds for minutes. [`documented_builds_and_installations_succeed`] runs it.
    Builds,
    /// A step of `.ci/run` executes it, in a line that contains this text.
    InCi(&'static str),
    /// It is run if this program is installed, as in CI.
    Needs(&'static str),
}

/// The blocks that are not run as they are: the page, the text of a line of the block, and the
/// treatment.
const NOT_RUN: &[(&str, &str, Instead)] = &[
    // Build and test for minutes.
    ("CONTRIBUTING.md", "cargo clippy --workspace", Instead::InCi("cargo clippy --workspace")),
    (
        "CONTRIBUTING.md",
        "--test configuration_page",
        // The same test, without writing.
        TESTS,
    ),
    ("CONTRIBUTING.md", "--test it proofs::", TESTS),
    ("README.md", "cargo run --release", Instead::Builds),
    ("README.md", "^cargo test$", TESTS),
    ("README.md", "cargo install --locked --path server/cli", Instead::Builds),
    ("README.md", "../lockwheel/packages/build", Instead::Builds),
    ("docs/deploy.md", "../lockwheel/packages/build", Instead::Builds),
    ("docs/running.md", "cargo install --locked --path server/cli", Instead::Builds),
    ("docs/testing.md", "packages/build --host out python", Instead::Builds),
    ("docs/testing.md", "packages/build --host out node", Instead::Builds),
    ("docs/testing.md", "packages/build --host out java", Instead::Builds),
    // Serves until it is ended.
    ("docs/monitoring.md", "lockwheel --port 6379 --admin-port", Instead::Serves),
    ("docs/running.md", "lockwheel --port 6379 --io-threads", Instead::Serves),
    ("docs/running.md", "lockwheel lockwheel.conf", Instead::Serves),
    ("docs/running.md", "lockwheel --appendonly yes --dir", Instead::Serves),
    ("docs/running.md", "LOCKWHEEL_REQUIREPASS=secret", Instead::Serves),
    ("docs/running.md", "^lockwheel$", Instead::Serves),
    ("docs/testing.md", "go mod edit", Instead::Needs("go")),
    // Run suites for minutes, on libraries and servers from their registries.
    ("docs/clients.md", "tests/clients/run", Instead::InCi("release/clients")),
    ("docs/compatibility.md", "tests/compatibility/run", Instead::InCi("release/compatibility")),
    // Measure for half an hour; the tests of the benches run both programs for a short time.
    ("docs/durability.md", "--bin compare", TESTS),
    ("docs/locks.md", "--bin compare", TESTS),
    ("docs/performance.md", "--bin compare", TESTS),
    ("docs/start.md", "--bin starts", TESTS),
    // Takes a minute; `tests/it/compat.rs` plays the whole suite.
    ("docs/compat.md", "^lockwheel compat redis://127.0.0.1:6379$", TESTS),
];

/// The tests.
const TESTS: Instead = Instead::InCi("cargo test --locked");

/// The steps of `.ci/run`.
const STEPS: &str = "tests/checks/steps.toml";

/// How long the commands of a block may take.
const TIMEOUT_SECONDS: u32 = 120;

/// How long they may take if they build.
const BUILD_TIMEOUT_SECONDS: u32 = 1800;

/// Creates a project for each language in the present folder.
const NEW_PROJECT: &str = "cargo init --quiet --lib --name shop
    python3 -m venv venv
    go mod init example.com/shop";

/// Settings of a build: programs are installed into this folder, and the packages carry a program
/// that is built faster, as in `tests/packages/run`.
const BUILD_SETTINGS: &str = "export CARGO_INSTALL_ROOT=$PWD
    export CARGO_PROFILE_DIST_LTO=false CARGO_PROFILE_DIST_CODEGEN_UNITS=4\n";

/// A fenced block.
struct Block {
    language: String,
    /// The number of its first line.
    line: usize,
    text: String,
}

/// A page on which blocks are run.
struct Page {
    name: String,
    folder: Folder,
    port: u16,
    /// A port for a server that the page starts.
    other_port: u16,
    _server: Daemon,
}

#[test]
fn documented_commands_give_the_documented_output() {
    let mut failures = Vec::new();
    let mut used = vec![false; NOT_RUN.len()];
    for (name, text) in pages() {
        let blocks = blocks(&text);
        let commands: Vec<&Block> = blocks.iter().filter(|block| block.is_command()).collect();
        if commands.is_empty() {
            continue;
        }
        let page = Page::start(name);
        for block in commands {
            let outcome = match instead_of(&page.name, block, &mut used) {
                None if block.language == "console" => page.converse(block),
                None if block.language == "yaml" => page.run(&steps(&block.text)).map(drop),
                None => page.run(&block.text).map(drop),
                Some(Instead::Serves) => page.serve(block),
                Some(Instead::Builds) => in_ci("--ignored documentation::"),
                Some(Instead::InCi(text)) => in_ci(text),
                Some(Instead::Needs(program)) => page.run_with(program, &block.text),
            };
            if let Err(problem) = outcome {
                failures.push(format!("{}:{}: {problem}", page.name, block.line));
            }
        }
    }
    for (row, _) in NOT_RUN.iter().zip(used).filter(|(_, used)| !used) {
        failures.push(format!("no block is {row:?}"));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The commands that build the program and the packages and install them. Those with the clone in
/// `../lockwheel` run in the folder of a project, others in the clone.
#[test]
#[ignore = "it builds for minutes: `.ci/run documented-builds` runs it"]
fn documented_builds_and_installations_succeed() {
    let mut failures = Vec::new();
    for (name, text) in pages() {
        let mut used = vec![false; NOT_RUN.len()];
        let mut builds = blocks(&text);
        builds.retain(|block| instead_of(&name, block, &mut used) == Some(&Instead::Builds));
        if builds.is_empty() {
            continue;
        }
        let page = Page::start(name);
        page.run(NEW_PROJECT).expect("an empty project for each language");
        for block in builds {
            if let Err(problem) = page.build(&block) {
                failures.push(format!("{}:{}: {problem}", page.name, block.line));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The page about `LOCKWHEEL` has a section for each line of its help that names a subcommand.
#[test]
fn every_subcommand_of_lockwheel_is_documented() {
    let page = fs::read_to_string(root().join("docs/lockwheel-commands.md")).expect("a page");
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let server = Server::builder().for_tests().start().expect("a server");
    let help = server.call(&["LOCKWHEEL", "HELP"]).expect("a reply");
    let Reply::Array(lines) = help else { panic!("{help:?}") };
    let line = |reply: &Reply| match reply {
        Reply::Simple(bytes) | Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => panic!("{reply:?}"),
    };
    let lines: Vec<String> = lines.iter().skip(1).map(line).collect();
    assert!(lines.len() > 20, "{lines:?}");
    // The words in capitals, without optional ones.
    let name = |syntax: &str| {
        let is_word = |word: &&str| word.chars().all(|char| char.is_ascii_uppercase());
        syntax.split(' ').filter(is_word).collect::<Vec<_>>().join(" ")
    };
    for syntax in lines.iter().filter(|line| !line.starts_with(' ')) {
        let wanted = format!("LOCKWHEEL {}", name(syntax));
        assert!(sections.iter().any(|section| name(section) == wanted), "{wanted} has no section");
    }
}

#[test]
fn architecture_names_the_gates_in_their_order() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).expect("the page");
    let names: Vec<&str> =
        lockwheel_engine::run::gates::GATES.iter().map(|gate| gate.name).collect();
    let order = format!("In order: {}.", names.join(", "));
    assert!(page.split_whitespace().collect::<Vec<_>>().join(" ").contains(&order), "{order}");
}

/// The table names the commands with the flag, and each option of `SET` once.
#[test]
fn table_of_plain_writes_is_that_of_the_flag() {
    fn options_of(arguments: &[Argument], options: &mut BTreeSet<String>) {
        for argument in arguments {
            options.extend(argument.token.map(str::to_owned));
            options_of(argument.arguments, options);
        }
    }
    let page = fs::read_to_string(root().join("docs/running.md")).expect("the page");
    let (_, table) = page.split_once("\n| Plain write | Not plain |\n|---|---|\n").expect("it");
    let [mut plain, mut others] = [BTreeSet::new(), BTreeSet::new()];
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let (left, right) = row.trim_matches('|').split_once('|').expect("two cells");
        for (cell, names) in [(left, &mut plain), (right, &mut others)] {
            names.extend(cell.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    let (mut flagged, mut options) = (BTreeSet::new(), BTreeSet::new());
    for &version in CompatVersion::ALL {
        for entry in CommandTable::of(Mode::Standalone, version).entries() {
            if entry.command.flags.contains(Flags::PLAIN_WRITE) {
                flagged.insert(entry.full_name.to_uppercase());
            }
            if entry.full_name == "set" {
                options_of(entry.command.arguments, &mut options);
            }
        }
    }
    let named: BTreeSet<String> = plain.union(&others).cloned().collect();
    assert!(plain.is_disjoint(&others), "{plain:?} {others:?}");
    assert_eq!(&plain - &options, flagged);
    assert_eq!(&named & &options, options);
}

/// Covers links from all pages to files, and to headings of pages.
#[test]
fn documentation_links_lead_to_files_and_headings() {
    let mut pages = Vec::new();
    for folder in ["", "docs", "packages", "tests", "benches", "server"] {
        collect_pages(&root().join(folder), !folder.is_empty(), &mut pages);
    }
    assert!(pages.len() > 40, "{pages:?}");
    let mut broken = Vec::new();
    for page in &pages {
        let text = fs::read_to_string(page).expect("a page");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.contains(' ') {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => page.clone(),
                path => page.parent().expect("a folder").join(path),
            };
            let has_anchor = || {
                let is_page = file.extension().is_some_and(|extension| extension == "md");
                let text = fs::read_to_string(&file).unwrap_or_default();
                anchor.is_empty() || !is_page || anchors(&text).contains(&anchor.to_owned())
            };
            if !file.exists() || !has_anchor() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn list_of_all_pages_names_each_page_of_docs_once_in_their_order() {
    let index = fs::read_to_string(root().join("docs/README.md")).expect("the page");
    let (_, list) = index.split_once("\n## All pages\n").expect("the list");
    let linked = list.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let names: Vec<String> = pages().into_iter().map(|(name, _)| name).collect();
    let names = names.iter().filter_map(|name| name.strip_prefix("docs/"));
    let names: Vec<&str> = names.filter(|name| *name != "README.md").collect();
    assert_eq!(linked.collect::<Vec<&str>>(), names);
}

/// A page that is measured again does not leave the figures of the README behind.
#[test]
fn figures_of_the_readme_are_those_of_the_linked_tables() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the page");
    let reasons = readme.split("\n- ").filter_map(|item| item.split_once("[table]("));
    let mut figures = 0;
    for (text, rest) in reasons {
        let path = rest.split(['#', ')']).next().unwrap_or_default();
        let page = fs::read_to_string(root().join(path)).expect("a page").replace(',', "");
        let is_figure = |char: char| char.is_ascii_digit() || ".,".contains(char);
        for figure in text.split(|char: char| !is_figure(char)) {
            let figure = figure.trim_matches(['.', ',']).replace(',', "");
            // Numbers of one or two digits are counts, such as those of nodes.
            if figure.len() > 2 {
                assert!(page.contains(&figure), "{path} has no {figure}: {text}");
                figures += 1;
            }
        }
    }
    assert!(figures > 15, "{figures}");
}

/// Adds the pages in a folder; with those in the folders in it, unless these are built, installed
/// or parts of programs.
fn collect_pages(folder: &Path, is_deep: bool, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_own = !name.starts_with('.') && !["target", "node_modules", "src"].contains(&&*name);
        if path.is_dir() && is_deep && is_own {
            collect_pages(&path, true, pages);
        } else if name.ends_with(".md") {
            pages.push(path);
        }
    }
}

/// The anchors of the headings of a page, as GitHub makes them.
fn anchors(page: &str) -> Vec<String> {
    let mut anchors: Vec<String> = Vec::new();
    let mut is_block = false;
    for line in page.lines() {
        is_block ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        if is_block || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let is_kept = |char: &char| char.is_alphanumeric() || " -_".contains(*char);
        let kept: String = title.trim().to_lowercase().chars().filter(is_kept).collect();
        let anchor = kept.replace(' ', "-");
        let is_same = |other: &&String| {
            other.strip_prefix(&anchor).is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix('-').is_some_and(|it| it.parse::<u8>().is_ok())
            })
        };
        let same = anchors.iter().filter(is_same).count();
        anchors.push(if same == 0 { anchor } else { format!("{anchor}-{same}") });
    }
    anchors
}

#[test]
fn anchors_are_those_of_headings() {
    let page = "# A `B` c-d, e\n```\n# no\n```\n## F\n### F\n#no\n";
    assert_eq!(anchors(page), ["a-b-c-d-e", "f", "f-1"]);
}

#[test]
fn dots_match_any_text_in_an_output() {
    assert!(is_like("OK", "OK"));
    assert!(!is_like("OK", "OK\nOK"));
    assert!(is_like("for ... ms", "for 29 ms"));
    assert!(!is_like("for ... ms", "for 29 s"));
    assert!(is_like("a\n...\nd", "a\nb\nc\nd"));
    assert!(!is_like("a\n...\nd", "a\nb\nc"));
    let page = "text\n```sh\na\n```\n    ```\n```console\n$ b \\\n  c\nd\n$ e\n```\n";
    let blocks = blocks(page);
    assert_eq!(blocks.len(), 2);
    assert_eq!((blocks[0].line, &*blocks[0].text), (3, "a\n"));
    assert_eq!(dialogue(&blocks[1].text), [("b \\\n  c".into(), "d".into()), pair("e", "")]);
    assert_eq!(steps("- run: |\n    a\n    b\n  uses: c\n- if: d\n  run: |\n    e\n"), "a\nb\ne\n");
}

fn pair(command: &str, output: &str) -> (String, String) {
    (command.to_owned(), output.to_owned())
}

/// The pages, by their paths from the root, with their texts.
fn pages() -> Vec<(String, String)> {
    let markdown = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let pages = names.filter(|name| name.ends_with(".md"));
        pages.map(|name| format!("{folder}{name}")).collect::<Vec<_>>()
    };
    let mut names = [markdown(""), markdown("docs/")].concat();
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).expect("a page");
        (name, text)
    };
    names.into_iter().map(read).collect()
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => {
                let language = language.trim().to_owned();
                open = Some(Block { language, line: index + 2, text: String::new() });
            }
            (None, Some(block)) => {
                block.text += line;
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    blocks
}

impl Block {
    fn is_command(&self) -> bool {
        ["sh", "bash", "shell", "console", "yaml"].contains(&self.language.as_str())
    }
}

/// The treatment of a block that is not run as it is; notes which rows apply.
fn instead_of(page: &str, block: &Block, used: &mut [bool]) -> Option<&'static Instead> {
    let is_in = |text: &str| match text.strip_prefix('^').and_then(|it| it.strip_suffix('$')) {
        Some(whole) => block.text.lines().any(|line| line == whole),
        None => block.text.contains(text),
    };
    let at = NOT_RUN.iter().position(|(name, text, _)| *name == page && is_in(text))?;
    used[at] = true;
    Some(&NOT_RUN[at].2)
}

fn in_ci(text: &str) -> Result<(), String> {
    let steps = fs::read_to_string(root().join(STEPS)).expect("the steps");
    if steps.contains(text) { Ok(()) } else { Err(format!("{STEPS} has no line with {text:?}")) }
}

/// The commands of the steps in a `yaml` block: the lines below `run: |`, which are indented more.
fn steps(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut commands = String::new();
    let mut step = None;
    for line in text.lines() {
        let key = line.trim_start().trim_start_matches("- ");
        match step {
            Some(run) if indent(line) > run => commands += &format!("{}\n", line.trim_start()),
            _ => step = (key == "run: |").then(|| line.len() - key.len()),
        }
    }
    assert!(!commands.is_empty(), "a yaml block without steps that can be run: {text}");
    commands
}

/// The commands of a `console` block, each with what it prints.
fn dialogue(text: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        match (line.strip_prefix("$ "), pairs.last_mut()) {
            (Some(command), _) => pairs.push(pair(command, "")),
            (None, Some((command, _))) if continues => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, output))) => {
                if !output.is_empty() {
                    output.push('\n');
                }
                output.push_str(line);
            }
            (None, None) => panic!("a console block begins with `$`: {text}"),
        }
        continues = (line.starts_with("$ ") || continues) && line.ends_with('\\');
    }
    pairs
}

/// Whether an output matches the expected text, in which `...` matches anything.
fn is_like(expected: &str, output: &str) -> bool {
    fn lines_like(expected: &[&str], output: &[&str]) -> bool {
        match (expected, output) {
            ([], []) => true,
            (["...", rest @ ..], _) => (0..=output.len()).any(|at| lines_like(rest, &output[at..])),
            ([line, rest @ ..], [printed, more @ ..]) => {
                line_like(line, printed) && lines_like(rest, more)
            }
            _ => false,
        }
    }
    fn line_like(expected: &str, line: &str) -> bool {
        let Some((head, tail)) = expected.split_once("...") else { return expected == line };
        let Some(rest) = line.strip_prefix(head) else { return false };
        (0..=rest.len())
            .filter(|&at| rest.is_char_boundary(at))
            .any(|at| line_like(tail, &rest[at..]))
    }
    let expected: Vec<&str> = expected.trim_end().lines().collect();
    let output: Vec<&str> = output.trim_end().lines().collect();
    lines_like(&expected, &output)
}

impl Page {
    fn start(name: String) -> Page {
        let arguments = ["--port", "0", "--enable-test-commands", "yes"];
        let mut server = Daemon::start(&arguments);
        let port = server.wait_for_port();
        let folder = Folder::new();
        let programs = PathBuf::from(folder.path("bin"));
        fs::create_dir_all(&programs).expect("a folder");
        fs::create_dir_all(folder.path("empty")).expect("a folder");
        symlink(root().canonicalize().expect("a checkout"), folder.path("lockwheel"))
            .expect("a link");
        let program = daemon::program().display();
        // On a terminal replies are printed for people; without -p and -u the page's server is
        // meant.
        let cli = format!(
            "case \" $* \" in *\" -u \"*|*\" -p \"*) ;; *) set -- -p {port} \"$@\" ;; esac\n\
             case \" $* \" in *\" --raw \"*) ;; *) set -- --no-raw \"$@\" ;; esac\n\
             exec '{program}' cli \"$@\"\n"
        );
        write_script(&programs.join("redis-cli"), &cli);
        let choose = format!(
            "if [ \"${{1:-}}\" = cli ]; then shift; exec redis-cli \"$@\"; fi\n\
             exec '{program}' \"$@\"\n"
        );
        write_script(&programs.join("lockwheel"), &choose);
        symlink(daemon::program(), programs.join("lockwheel.real")).expect("a link");
        Page { name, folder, port, other_port: free_port(), _server: server }
    }

    /// A shell with this script. Port 6379 is another one.
    fn shell(&self, script: &str, port: u16, timeout_seconds: u32) -> Command {
        let script = script.replace("6379", &port.to_string());
        let script = script.replace("6380", &self.other_port.to_string());
        let mut command = Command::new("timeout");
        command.arg(timeout_seconds.to_string());
        command.args(["bash", "-euo", "pipefail", "-c", &script]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LOCKWHEEL_")) {
            command.env_remove(name);
        }
        daemon::forget_package(&mut command);
        let path = std::env::var("PATH").unwrap_or_default();
        let [programs, python] = ["bin", "empty/venv/bin"].map(|name| self.folder.path(name));
        command.env("PATH", format!("{programs}:{python}:{path}"));
        command.current_dir(self.folder.path("empty")).stdin(Stdio::null());
        command
    }

    /// Runs a script to its end; what it prints, if it succeeds.
    fn run(&self, script: &str) -> Result<String, String> {
        self.run_for(script, TIMEOUT_SECONDS)
    }

    fn run_for(&self, script: &str, timeout_seconds: u32) -> Result<String, String> {
        let output = self.shell(script, self.port, timeout_seconds).output().expect("a shell");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => Ok(printed + &errors),
            false => Err(format!("{}: {printed}{errors}", output.status)),
        }
    }

    /// Runs a script if this program is installed.
    fn run_with(&self, program: &str, script: &str) -> Result<(), String> {
        if self.run(&format!("command -v {program}")).is_err() {
            left_out::without(program);
            return in_ci(program);
        }
        self.run(script).map(drop)
    }

    /// Runs a block that builds, in the project if it names `../lockwheel`, else in the clone.
    fn build(&self, block: &Block) -> Result<(), String> {
        let folder = if block.text.contains("../lockwheel") { "" } else { "cd ../lockwheel\n" };
        let script = format!("{BUILD_SETTINGS}{folder}{}", block.text);
        if block.text == "cargo run --release\n" {
            // The compiler may take longer than a server has for its first line.
            let build = script.replace("cargo run", "cargo build");
            self.run_for(&build, BUILD_TIMEOUT_SECONDS)?;
            // Cargo takes the place of the shell, and the server that of Cargo.
            let script =
                format!("export LOCKWHEEL_PORT=0\ncargo() {{ exec cargo \"$@\"; }}\n{script}");
            return self.serve_script(&script);
        }
        let outcome = self.run_for(&script, BUILD_TIMEOUT_SECONDS);
        match outcome {
            // There are no tools to link statically; the page names the option for that.
            Err(problem) if problem.starts_with("exit status: 3:") => {
                let script = script.replace("packages/build", "packages/build --host");
                self.run_for(&script, BUILD_TIMEOUT_SECONDS).map(drop)
            }
            outcome => outcome.map(drop),
        }
    }

    /// Runs the commands of a `console` block and compares what they print.
    fn converse(&self, block: &Block) -> Result<(), String> {
        for (command, expected) in dialogue(&block.text) {
            // Programs such as linters and tests fail where they have found something.
            let mut output = String::new();
            // A server that the page has started with `--daemonize yes` may not listen yet.
            eventually("the server listens", || {
                let printed = self.run(&format!("{{ {command}\n}} 2>&1 || true"));
                output = printed.unwrap_or_else(|problem| problem);
                !output.starts_with("Could not connect")
            });
            let expected = expected.replace("6379", &self.port.to_string());
            if !is_like(&expected, &output) {
                return Err(format!("$ {command}\nexpected:\n{expected}\nprinted:\n{output}"));
            }
        }
        Ok(())
    }

    /// Runs a block that starts a server, until it accepts connections; ends it.
    fn serve(&self, block: &Block) -> Result<(), String> {
        // It takes the place of the shell, so that signals reach it.
        let settings = "export LOCKWHEEL_PORT=0\nlockwheel() { exec lockwheel.real \"$@\"; }\n";
        self.serve_script(&format!("{settings}{}", block.text))
    }

    fn serve_script(&self, script: &str) -> Result<(), String> {
        let shell = self.shell(script, 0, BUILD_TIMEOUT_SECONDS);
        let mut server = Daemon::spawn(Folder::new(), shell, "");
        server.wait_for_port();
        server.signal("TERM");
        let status = server.end();
        if status.success() { Ok(()) } else { Err(format!("{status}: {}", server.log_text)) }
    }
}

fn write_script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}")).expect("a script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

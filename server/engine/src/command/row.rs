//! The row of a command, and the table of all rows.

use std::sync::OnceLock;

use bitflags::bitflags;
use lockwheel_resp::Reply;

use crate::acl::Channels;
use crate::command::argument::Argument;
use crate::command::is;
use crate::command::names::Names;
use crate::commands;
use crate::error::Error;
use crate::run::context::Context;
use crate::settings::{CompatVersion, Mode, Settings, Vendor};
use crate::statistics::latency::Times;
use crate::store::value::ValueRef;

/// Runs a command. `argv[0]` is the command's name, and `argv[1]` that of a subcommand. The number
/// of arguments has been checked.
pub type Handler = fn(&mut Context<'_>, &[&[u8]]) -> Result<Reply, Error>;

/// Whether a call with these arguments makes nothing longer in a key with this value.
pub type AddsNothing = fn(ValueRef<'_>, &[&[u8]]) -> bool;

/// The number of arguments of a command, with its name and that of a subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many.
    Exactly(usize),
    /// This many or more.
    AtLeast(usize),
}

impl Arity {
    /// Whether this number of arguments is valid.
    pub const fn admits(self, count: usize) -> bool {
        match self {
            Arity::Exactly(n) => count == n,
            Arity::AtLeast(n) => count >= n,
        }
    }

    /// The number in `COMMAND`: negative for a minimum.
    pub const fn code(self) -> i64 {
        match self {
            Arity::Exactly(n) => n as i64,
            Arity::AtLeast(n) => -(n as i64),
        }
    }
}

bitflags! {
    /// The flags of a command, with the names and in the order of `COMMAND`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Flags: u32 {
        /// Changes keys.
        const WRITE = 1;
        /// Reads keys.
        const READONLY = 1 << 1;
        /// Refused when memory is full.
        const DENYOOM = 1 << 2;
        /// An administrative command.
        const ADMIN = 1 << 3;
        /// Publishes or subscribes.
        const PUBSUB = 1 << 4;
        /// Not allowed in scripts.
        const NOSCRIPT = 1 << 5;
        /// May block.
        const BLOCKING = 1 << 6;
        /// Allowed while data is being loaded.
        const LOADING = 1 << 7;
        /// Allowed on a replica that has lost its master.
        const STALE = 1 << 8;
        /// Not shown to `MONITOR`.
        const SKIP_MONITOR = 1 << 9;
        /// Not logged as slow.
        const SKIP_SLOWLOG = 1 << 10;
        /// Implies `ASKING`.
        const ASKING = 1 << 11;
        /// Takes constant or logarithmic time.
        const FAST = 1 << 12;
        /// Allowed before `AUTH`.
        const NO_AUTH = 1 << 13;
        /// Has effects without being a write: `PUBLISH`, `EVAL`. Not shown.
        const MAY_REPLICATE = 1 << 14;
        /// May be called without keys although it accepts them.
        const NO_MANDATORY_KEYS = 1 << 15;
        /// Not allowed while data is loaded in the background.
        const NO_ASYNC_LOADING = 1 << 16;
        /// Not allowed in a transaction.
        const NO_MULTI = 1 << 17;
        /// A row whose keys cannot be found with the first, last and step alone.
        const MOVABLEKEYS = 1 << 18;
        /// Allowed while a script runs longer than `busy-reply-threshold`.
        const ALLOW_BUSY = 1 << 19;
        /// Accesses keys that it does not name. Not shown.
        const TOUCHES_ARBITRARY_KEYS = 1 << 20;
        /// Only for clients that `enable-debug-command` permits. Not shown.
        const PROTECTED = 1 << 21;
        /// Only for clients that `enable-test-commands` permits. Not shown.
        const FOR_TESTS = 1 << 22;
        /// Runs at once between `MULTI` and `EXEC`. Not shown.
        const NOT_QUEUED = 1 << 23;
        /// Runs the queue of a transaction: `EXEC`. Not shown.
        const RUNS_QUEUE = 1 << 24;
        /// Allowed for RESP2 clients with subscriptions. Not shown.
        const FOR_SUBSCRIBERS = 1 << 25;
        /// Not for applications, as `COMMAND DOCS` says. Not shown.
        const INTERNAL = 1 << 26;
        /// Shows whether data is being loaded. Not shown.
        const SHOWS_LOADING = 1 << 27;
        /// If it is called without a condition, its reply does not say whether a client was first.
        /// So outside scripts and transactions it makes no lock. Not shown.
        const PLAIN_WRITE = 1 << 28;
    }
}

impl Flags {
    /// The flags that `COMMAND` does not show.
    pub const HIDDEN: Flags = Flags::MAY_REPLICATE
        .union(Flags::TOUCHES_ARBITRARY_KEYS)
        .union(Flags::PROTECTED)
        .union(Flags::FOR_TESTS)
        .union(Flags::NOT_QUEUED)
        .union(Flags::RUNS_QUEUE)
        .union(Flags::FOR_SUBSCRIBERS)
        .union(Flags::INTERNAL)
        .union(Flags::SHOWS_LOADING)
        .union(Flags::PLAIN_WRITE);
}

bitflags! {
    /// ACL categories, in the order `COMMAND` prints them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Categories: u32 {
        /// `@keyspace`
        const KEYSPACE = 1;
        /// `@read`
        const READ = 1 << 1;
        /// `@write`
        const WRITE = 1 << 2;
        /// `@set`
        const SET = 1 << 3;
        /// `@sortedset`
        const SORTEDSET = 1 << 4;
        /// `@list`
        const LIST = 1 << 5;
        /// `@hash`
        const HASH = 1 << 6;
        /// `@string`
        const STRING = 1 << 7;
        /// `@bitmap`
        const BITMAP = 1 << 8;
        /// `@hyperloglog`
        const HYPERLOGLOG = 1 << 9;
        /// `@geo`
        const GEO = 1 << 10;
        /// `@stream`
        const STREAM = 1 << 11;
        /// `@pubsub`
        const PUBSUB = 1 << 12;
        /// `@admin`
        const ADMIN = 1 << 13;
        /// `@fast`
        const FAST = 1 << 14;
        /// `@slow`
        const SLOW = 1 << 15;
        /// `@blocking`
        const BLOCKING = 1 << 16;
        /// `@dangerous`
        const DANGEROUS = 1 << 17;
        /// `@connection`
        const CONNECTION = 1 << 18;
        /// `@transaction`
        const TRANSACTION = 1 << 19;
        /// `@scripting`
        const SCRIPTING = 1 << 20;
        /// `@lock`, a category of this server: the commands that have a meaning to locks.
        const LOCK = 1 << 21;
        /// `@lockforce`, a category of this server: commands that release locks of any owner.
        const LOCKFORCE = 1 << 22;
    }
}

impl Categories {
    /// The category of that name, ignoring case.
    pub fn named(name: &[u8]) -> Option<Categories> {
        Categories::all()
            .iter_names()
            .find_map(|(known, category)| is(name, known).then_some(category))
    }
}

/// The group in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the group of its name")]
pub enum Group {
    Generic,
    String,
    List,
    Set,
    SortedSet,
    Hash,
    Bitmap,
    Pubsub,
    Transactions,
    Connection,
    Server,
    Scripting,
    Stream,
    Cluster,
    Sentinel,
    Lock,
}

impl Group {
    /// The name in `COMMAND DOCS`.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Generic => "generic",
            Group::String => "string",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Hash => "hash",
            Group::Bitmap => "bitmap",
            Group::Pubsub => "pubsub",
            Group::Transactions => "transactions",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Scripting => "scripting",
            Group::Stream => "stream",
            Group::Cluster => "cluster",
            Group::Sentinel => "sentinel",
            Group::Lock => "lock",
        }
    }
}

/// How the first argument of a command names the script that the command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptArgument {
    /// It is the text of the script.
    Text,
    /// It is the digest of a cached script.
    Digest,
    /// It is the name of a function.
    Function,
}

/// What a command reads files for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileUse {
    /// For the users, from the ACL file.
    Users,
    /// For the directives among its arguments.
    Settings,
}

/// Returns how a call with these arguments accesses its keys.
pub type FindKeyFlags = fn(&[&[u8]]) -> KeyFlags;

/// What a command does to a key, in the terms of `COMMAND`: `RW`, `access`, `update`, ...
pub type KeyFlags = &'static [&'static str];

/// Where the keys of a command are, and how they are accessed.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// How they are accessed.
    pub flags: KeyFlags,
    /// The position of the first key.
    pub begin: usize,
    /// Where the further keys are.
    pub find: FindKeys,
}

/// How to find the keys after the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindKeys {
    /// Up to `last` (0: only the first; negative: counted from the last argument), every `step`th.
    Range {
        /// Relative to the first; a negative number counts from the end.
        last: i64,
        /// The distance between two keys.
        step: i64,
    },
    /// The argument at `begin` is the number of keys that follow it.
    Count,
    /// After the last `STORE` among the options, if present. Shown as unknown.
    Store(Options),
    /// Not among the arguments: the keys follow from stored data.
    Unknown,
    /// The first half of the arguments after this word, which is one of the options. Shown as a
    /// word that is searched for from `begin` on.
    HalfAfter(&'static str, Options),
}

/// The other options of a command, with the number of their arguments: these may be any words.
pub type Options = &'static [(&'static str, usize)];

/// The integer at the start of a text, as C's `atoi` reads it; 0 if there is none. Redis finds the
/// keys of a request with it, even where the command then refuses the number.
fn c_integer(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    let digits = digits.iter().take_while(|digit| digit.is_ascii_digit());
    digits.fold(0, |number: i64, digit| {
        number.saturating_mul(10).saturating_add(sign * i64::from(digit - b'0'))
    })
}

impl KeySpec {
    /// One key, at argument 1.
    pub const fn one(flags: &'static [&'static str]) -> KeySpec {
        KeySpec { flags, begin: 1, find: FindKeys::Range { last: 0, step: 1 } }
    }

    /// One key, at argument `begin`.
    pub const fn at(begin: usize, flags: &'static [&'static str]) -> KeySpec {
        KeySpec { flags, begin, find: FindKeys::Range { last: 0, step: 1 } }
    }

    /// Every argument from the first on.
    pub const fn all(flags: &'static [&'static str]) -> KeySpec {
        KeySpec { flags, begin: 1, find: FindKeys::Range { last: -1, step: 1 } }
    }

    /// Appends the positions of the keys in `argv` to `places`; false if the arguments are
    /// malformed.
    pub fn places(&self, argv: &[&[u8]], places: &mut Vec<usize>) -> bool {
        let count = argv.len();
        match self.find {
            FindKeys::Range { last, step } => {
                let last = if last < 0 { count as i64 + last } else { self.begin as i64 + last };
                let mut at = self.begin as i64;
                while at <= last {
                    if at as usize >= count {
                        return false;
                    }
                    places.push(at as usize);
                    at += step;
                }
                true
            }
            FindKeys::Count => {
                let number = argv.get(self.begin).map(|number| c_integer(number));
                let Some(keys) = number.and_then(|number| usize::try_from(number).ok()) else {
                    return false;
                };
                let first = self.begin + 1;
                match first.checked_add(keys) {
                    Some(end) if end <= count => {
                        places.extend(first..end);
                        true
                    }
                    _ => false,
                }
            }
            FindKeys::Store(options) => {
                places.extend(places_after("store", argv, self.begin, options).last());
                true
            }
            FindKeys::Unknown => true,
            FindKeys::HalfAfter(word, options) => {
                let Some(first) = places_after(word, argv, 1, options).next() else {
                    return false;
                };
                places.extend(first..first + (count - first) / 2);
                first + 1 < count
            }
        }
    }
}

/// The positions of the arguments that follow the option `word`, from `begin` on.
fn places_after(
    word: &str,
    argv: &[&[u8]],
    begin: usize,
    others: Options,
) -> impl Iterator<Item = usize> {
    let mut at = begin;
    std::iter::from_fn(move || {
        loop {
            let (place, argument) = (at, argv.get(at)?);
            let other = others.iter().find(|(name, _)| is(argument, name));
            at += 1 + other.map_or(0, |&(_, arguments)| arguments);
            if other.is_none() && is(argument, word) && place + 1 < argv.len() {
                return Some(place + 1);
            }
        }
    })
}

/// What a command means to a lock. The recognition of locks derives the rest from the row: the type
/// of the lock from the group, conditions from the keys' flags and the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMeaning {
    /// It can create a lock or enter an owner.
    Acquire,
    /// It changes the deadline.
    Renew,
    /// It can remove a lock or an owner.
    Release,
    /// It removes the owners whose leases are over.
    Purge,
    /// It reads a lock without changing it.
    Inspect,
    /// Locks are not made with it.
    None,
}

/// The row of a command. `Command::BASE` has the default of every field.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// In lower case; for a subcommand, without the name of its parent.
    pub name: &'static str,
    /// The number of arguments.
    pub arity: Arity,
    /// See [`Flags`].
    pub flags: Flags,
    /// ACL categories that do not follow from the flags.
    pub categories: Categories,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// How it accesses them, if that depends on its options.
    pub key_flags: Option<FindKeyFlags>,
    /// Which of its arguments are channels that it publishes to or subscribes to.
    pub channels: Option<Channels>,
    /// The script that it runs, if any.
    pub script: Option<ScriptArgument>,
    /// What it reads files for, if it does. For commands with the flag `ADMIN`.
    pub files: Option<FileUse>,
    /// Its group.
    pub group: Group,
    /// The version that introduced it.
    pub since: &'static str,
    /// The server of that version.
    pub maker: Vendor,
    /// The version since which it is deprecated, and what replaces it.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// Its complexity.
    pub complexity: &'static str,
    /// Its description, in one sentence.
    pub doc: &'static str,
    /// The grammar of its arguments, after the names.
    pub arguments: &'static [Argument],
    /// What it means to a lock.
    pub lock: LockMeaning,
    /// The calls that may run when memory is full; `None` if no call may. For commands that need
    /// memory and have one key, the first argument.
    pub adds_nothing: Option<AddsNothing>,
    /// `COMMAND`'s tips, such as `nondeterministic_output`.
    pub tips: &'static [&'static str],
    /// A conversation that shows the command and is run as a test: commands separated by `;`, the
    /// last one followed by `=>` and its RESP2 reply, in the notation of `testing.rs`.
    pub example: &'static str,
    /// Its subcommands. A command that has any runs itself only with a matching number of
    /// arguments.
    pub subcommands: &'static [Command],
    /// Its handler.
    pub run: Handler,
}

impl Command {
    /// Whether the reply may depend on more keys than the command looks up.
    pub(crate) fn reads_all_keys(&self) -> bool {
        let is_of_session =
            matches!(self.group, Group::Connection | Group::Pubsub | Group::Transactions);
        self.keys.is_empty() && !is_of_session
    }

    /// The defaults of all fields: `Command { name: ..., ..Command::BASE }`.
    pub const BASE: Command = Command {
        name: "",
        arity: Arity::AtLeast(1),
        flags: Flags::empty(),
        categories: Categories::empty(),
        keys: &[],
        key_flags: None,
        channels: None,
        script: None,
        files: None,
        group: Group::Generic,
        since: "1.0.0",
        maker: Vendor::Both,
        deprecated: None,
        complexity: "O(1)",
        doc: "",
        arguments: &[],
        lock: LockMeaning::None,
        adds_nothing: None,
        tips: &[],
        example: "",
        subcommands: &[],
        run: |_, _| Err(Error::Syntax),
    };

    /// Whether this command has no subcommands and accepts this number of arguments, its name
    /// included.
    pub fn takes(&self, arguments: usize) -> bool {
        self.subcommands.is_empty() && self.arity.admits(arguments)
    }

    /// Whether one of its options or arguments begins with this word.
    pub fn has_token(&self, word: &str) -> bool {
        self.arguments.iter().any(|argument| argument.has_token(word))
    }

    /// All ACL categories, including those that follow from the flags.
    pub fn all_categories(&self) -> Categories {
        let mut all = self.categories;
        let scripting = self.categories.contains(Categories::SCRIPTING);
        all.set(Categories::WRITE, self.flags.contains(Flags::WRITE));
        all.set(Categories::READ, self.flags.contains(Flags::READONLY) && !scripting);
        if self.flags.contains(Flags::ADMIN) {
            all |= Categories::ADMIN | Categories::DANGEROUS;
        }
        if self.flags.contains(Flags::PUBSUB) {
            all |= Categories::PUBSUB;
        }
        if self.flags.contains(Flags::BLOCKING) {
            all |= Categories::BLOCKING;
        }
        // Not the commands with which any lock can be removed.
        let is_forced = self.flags.contains(Flags::ADMIN) || all.contains(Categories::LOCKFORCE);
        all.set(Categories::LOCK, self.lock != LockMeaning::None && !is_forced);
        all |= if self.flags.contains(Flags::FAST) { Categories::FAST } else { Categories::SLOW };
        all
    }

    /// The first key, the last key (negative: counted from the end) and the step, for clients older
    /// than Redis 7. All 0 if there are no keys or they are elsewhere.
    pub fn key_range(&self) -> (i64, i64, i64) {
        let range = |spec: &KeySpec| match spec.find {
            FindKeys::Range { last, step } => {
                let first = spec.begin as i64;
                Some((first, if last < 0 { last } else { first + last }, step))
            }
            FindKeys::Count | FindKeys::HalfAfter(..) | FindKeys::Store(_) | FindKeys::Unknown => {
                None
            }
        };
        if let [only] = self.keys {
            return range(only).unwrap_or((0, 0, 0));
        }
        // Adjacent ranges are joined into one.
        let joined = self.keys.iter().filter_map(range).filter(|&(_, _, step)| step == 1).fold(
            None,
            |joined, (first, last, _)| match joined {
                None => Some((first, last)),
                Some((begin, end)) if end + 1 == first => Some((begin, last)),
                other => other,
            },
        );
        joined.map_or((0, 0, 0), |(first, last)| (first, last, 1))
    }

    /// How a call accesses the keys of one of its specifications.
    pub fn key_flags(&self, spec: &KeySpec, argv: &[&[u8]]) -> KeyFlags {
        self.key_flags.map_or(spec.flags, |flags| flags(argv))
    }

    /// The positions of the keys in `argv`; `None` if the arguments are malformed.
    pub fn key_places(&self, argv: &[&[u8]]) -> Option<Vec<usize>> {
        let mut places = Vec::new();
        let mut specs = self.keys.iter().filter(|spec| !spec.flags.contains(&"not_key"));
        specs.all(|spec| spec.places(argv, &mut places)).then_some(places)
    }
}

/// Statistics of a command.
#[derive(Clone, Debug, Default)]
pub struct CommandStats {
    /// Number of calls.
    pub calls: u64,
    /// Number of requests refused by a gate.
    pub rejected: u64,
    /// Number of calls that failed.
    pub failed: u64,
    /// How long the calls took.
    pub times: Times,
}

/// A row of the table with its full name.
#[derive(Debug)]
pub struct Entry {
    /// Its position in the table.
    pub at: usize,
    /// The row.
    pub command: &'static Command,
    /// `get`, or `client|id` for a subcommand.
    pub full_name: String,
    /// The entries of its subcommands.
    pub subcommands: Vec<usize>,
}

/// The commands of a server mode and version, by name. The table never changes, so one table serves
/// all engines of that mode and version in a process.
#[derive(Debug)]
pub struct CommandTable {
    entries: Vec<Entry>,
    /// Commands by name. Subcommands are found through their parents.
    index: Names,
    top: Vec<usize>,
}

impl CommandTable {
    /// The table of a server with these settings.
    pub fn of_server(settings: &Settings) -> &'static CommandTable {
        const VERSIONS: usize = CompatVersion::ALL.len();
        static NODES: [OnceLock<CommandTable>; VERSIONS] = [const { OnceLock::new() }; VERSIONS];
        let (mode, version) = (settings.mode(), settings.compat_version);
        if settings.is_node() && mode == Mode::Standalone {
            let of_node = || CommandTable::new(commands::node_commands(), version);
            return NODES[version as usize].get_or_init(of_node);
        }
        CommandTable::of(mode, version)
    }

    /// The table of a server mode and version, of a server that is no node of a cluster.
    pub fn of(mode: Mode, version: CompatVersion) -> &'static CommandTable {
        const VERSIONS: usize = CompatVersion::ALL.len();
        static SERVERS: [OnceLock<CommandTable>; VERSIONS] = [const { OnceLock::new() }; VERSIONS];
        static SENTINELS: [OnceLock<CommandTable>; VERSIONS] =
            [const { OnceLock::new() }; VERSIONS];
        let at = version as usize;
        match mode {
            Mode::Standalone | Mode::Cluster => {
                SERVERS[at].get_or_init(|| CommandTable::new(commands::server_commands(), version))
            }
            Mode::Sentinel => SENTINELS[at]
                .get_or_init(|| CommandTable::new(commands::sentinel_commands(), version)),
        }
    }

    fn new(
        commands: impl Iterator<Item = &'static Command>,
        version: CompatVersion,
    ) -> CommandTable {
        let index = Names::new([].into_iter());
        let mut table = CommandTable { entries: Vec::new(), index, top: Vec::new() };
        let exists = |command: &&Command| version.has(command.maker, command.since);
        for command in commands.filter(exists) {
            let at = table.add(command, command.name.to_owned());
            table.top.push(at);
            for subcommand in command.subcommands.iter().filter(exists) {
                let name = format!("{}|{}", command.name, subcommand.name);
                let at_sub = table.add(subcommand, name);
                table.entries[at].subcommands.push(at_sub);
            }
        }
        let name = |&at: &usize| (table.entries[at].command.name, at);
        table.index = Names::new(table.top.iter().map(name));
        table
    }

    fn add(&mut self, command: &'static Command, full_name: String) -> usize {
        let at = self.entries.len();
        self.entries.push(Entry { at, command, full_name, subcommands: Vec::new() });
        at
    }

    /// Finds a command by its name, ignoring case.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.index.find(name)
    }

    /// Finds a subcommand of the command at `parent` by its name, ignoring case.
    pub fn find_subcommand(&self, parent: usize, name: &[u8]) -> Option<usize> {
        self.entries[parent]
            .subcommands
            .iter()
            .copied()
            .find(|&at| self.entries[at].command.name.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Finds a command by its name, or a subcommand as in `config|get`.
    pub fn find_full_name(&self, name: &[u8]) -> Option<&Entry> {
        let mut parts = name.splitn(2, |&byte| byte == b'|');
        let parent = self.find(parts.next()?)?;
        let at = match parts.next() {
            Some(own) => self.find_subcommand(parent, own)?,
            None => parent,
        };
        Some(self.entry(at))
    }

    /// Finds the command or subcommand of a request.
    pub fn find_request(&self, argv: &[&[u8]]) -> Option<&Entry> {
        let at = self.find(argv.first()?)?;
        let has_subcommands = !self.entry(at).subcommands.is_empty();
        let at = match argv.get(1).filter(|_| has_subcommands) {
            Some(name) => self.find_subcommand(at, name)?,
            None => at,
        };
        Some(self.entry(at))
    }

    /// The entry at a position.
    pub fn entry(&self, at: usize) -> &Entry {
        &self.entries[at]
    }

    /// The positions of all commands without subcommands, group by group.
    pub fn top(&self) -> &[usize] {
        &self.top
    }

    /// All entries, subcommands included.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

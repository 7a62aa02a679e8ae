//! What a command means to locks. It follows from the command's row: what it means to a lock, its
//! group, the flags of its keys, its options.

use lockwheel_resp::Reply;

use super::table::KeyAccess;
use crate::command::{Command, Flags, Group, LockMeaning, is};

/// Returns whether a command only queries the state, and is not recorded.
pub(crate) fn is_query(command: &Command, argv: &[&[u8]]) -> bool {
    if command.group == Group::Server && command.lock == LockMeaning::Inspect {
        return true;
    }
    let names = |word| argv.get(2).is_some_and(|operation| is(operation, word));
    let without_effect = match command.lock {
        LockMeaning::None => argv.len() == 2 || names("list") || names("await"),
        _ => false,
    };
    command.flags.contains(Flags::FOR_TESTS) && without_effect
}

/// The text of a script that a command caches without running it.
pub(crate) fn loaded_script<'a>(command: &Command, argv: &[&'a [u8]]) -> Option<&'a [u8]> {
    let first = command.arguments.first()?;
    let loads = command.group == Group::Scripting && command.script.is_none();
    argv.get(2).copied().filter(|_| loads && first.name() == "script")
}

/// The owners that a command names: only commands that compare a value do.
pub(crate) fn claims<'a>(command: &Command, argv: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let compares = || command.has_token("IFEQ") && has_option(argv, "ifeq");
    match command.lock {
        _ if command.group == Group::Lock => native_owner(command, argv).into_iter().collect(),
        LockMeaning::Release if command.group == Group::String => {
            argv.iter().skip(2).copied().collect()
        }
        LockMeaning::Acquire | LockMeaning::Release if command.group == Group::SortedSet => {
            argv.iter().skip(2).copied().collect()
        }
        LockMeaning::Acquire if compares() => argv.iter().skip(3).copied().collect(),
        _ if command.script.is_some() => script_arguments(argv),
        _ => Vec::new(),
    }
}

/// The owner that a command for native locks names.
pub(crate) fn native_owner<'a>(command: &Command, argv: &[&'a [u8]]) -> Option<&'a [u8]> {
    let at = command.arguments.iter().position(|argument| argument.name() == "owner")?;
    argv.get(at + 1).copied()
}

/// The arguments of a script after its keys.
fn script_arguments<'a>(argv: &[&'a [u8]]) -> Vec<&'a [u8]> {
    let keys = argv.get(2).and_then(|count| lockwheel_resp::number::parse_integer(count));
    let keys = keys.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    argv.iter().skip(keys.saturating_add(3)).copied().collect()
}

/// The operations of a command on the keys it names.
pub(crate) fn access(command: &Command, argv: &[&[u8]], reply: &Reply) -> KeyAccess {
    let mut access = KeyAccess::default();
    if reply.is_error() {
        return access;
    }
    let happened = *reply == Reply::Integer(1);
    match command.lock {
        LockMeaning::Acquire if command.group == Group::Lock => access.field = is_grant(reply),
        LockMeaning::Acquire if command.group == Group::Hash => access.field = true,
        LockMeaning::Acquire if command.group == Group::SortedSet => access.member = true,
        LockMeaning::Acquire if only_inserts(command) => access.made = happened,
        LockMeaning::Acquire if command.has_token("NX") => {
            let (get, nx) = (has_option(argv, "get"), has_option(argv, "nx"));
            let done = if get { *reply == Reply::Null } else { *reply == Reply::OK };
            access.made = done && nx;
            access.set = !nx && (done || get);
        }
        LockMeaning::Acquire => access.set = true,
        // `GETEX` replies with the value, and changes the deadline if it has an option.
        LockMeaning::Renew if command.group == Group::String => access.lease = argv.len() > 2,
        LockMeaning::Renew => access.lease = happened || matches!(reply, Reply::Array(_)),
        LockMeaning::Release => access.removes = true,
        LockMeaning::Purge => access.purges = true,
        LockMeaning::Inspect => access.reads = true,
        LockMeaning::None => access.modifies = modifies(command),
    }
    access
}

/// Whether the reply of `LOCK.ACQUIRE` grants the lock.
fn is_grant(reply: &Reply) -> bool {
    let Reply::Map(pairs) = reply else { return false };
    pairs.iter().any(|(_, value)| *value == Reply::bulk("acquired"))
}

/// Whether a command modifies a value in a way that no lock is modified: it neither replaces nor
/// removes it.
fn modifies(command: &Command) -> bool {
    command.flags.contains(Flags::WRITE)
        && !matches!(command.group, Group::Generic | Group::Server)
        && command.script.is_none()
        && command
            .keys
            .first()
            .is_some_and(|spec| spec.flags.contains(&"RW") && spec.flags.contains(&"update"))
}

/// Whether a command that is refused has met another owner's lock.
pub(crate) fn sets_conditionally(command: &Command) -> bool {
    command.lock == LockMeaning::Acquire
        && (command.group == Group::Lock
            || command.group == Group::String && (only_inserts(command) || command.has_token("NX")))
}

/// Whether a command replaces a string and replies with the old one.
pub(crate) fn exchanges(command: &Command) -> bool {
    let reads = command.keys.first().is_some_and(|spec| spec.flags.contains(&"access"));
    command.lock == LockMeaning::Acquire
        && command.group == Group::String
        && reads
        && !command.has_token("NX")
}

/// Whether a command is meant to extend a lease: it names the new one.
pub(crate) fn is_renewal(command: &Command, argv: &[&[u8]]) -> bool {
    always_renews(command)
        || command.lock == LockMeaning::Acquire && command.has_token("XX") && has_option(argv, "xx")
}

/// Whether a command has no other use than to extend a lease.
pub(crate) fn always_renews(command: &Command) -> bool {
    command.lock == LockMeaning::Renew && !command.arity.admits(2)
}

/// Whether a command can remove locks that it does not name, or give a lock another name.
pub(crate) fn takes_away(command: &Command) -> bool {
    command.flags.contains(Flags::WRITE)
        && command.lock == LockMeaning::None
        && matches!(command.group, Group::Generic | Group::Server)
        && command.keys.first().is_none_or(|spec| spec.flags.contains(&"RW"))
}

/// Whether a command simulates the loss of writes.
pub(crate) fn is_failover(command: &Command) -> bool {
    command.flags.contains(Flags::FOR_TESTS) && command.lock == LockMeaning::Release
}

fn only_inserts(command: &Command) -> bool {
    command.keys.first().is_some_and(|spec| spec.flags.contains(&"insert"))
}

/// Whether an option follows the key and the value.
fn has_option(argv: &[&[u8]], name: &str) -> bool {
    argv.iter().skip(3).any(|option| is(option, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandTable;
    use crate::settings::{CompatVersion, Mode};

    /// The names of the commands of any version for which a function is true.
    fn names(holds: fn(&Command) -> bool) -> String {
        let mut names: Vec<&str> = Vec::new();
        for &version in CompatVersion::ALL {
            let entries = CommandTable::of(Mode::Standalone, version).entries().iter();
            let held = entries.filter(|entry| holds(entry.command));
            names.extend(held.map(|entry| entry.full_name.as_str()));
        }
        names.sort_unstable();
        names.dedup();
        names.join(" ")
    }

    #[test]
    fn rows_give_each_command_its_meaning() {
        let loads = |command: &Command| loaded_script(command, &[b"", b"", b"text"]).is_some();
        assert_eq!(names(loads), "script|load");
        assert_eq!(names(sets_conditionally), "lock.acquire msetnx set setnx");
        assert_eq!(names(exchanges), "getset");
        let writes_plainly = |command: &Command| command.flags.contains(Flags::PLAIN_WRITE);
        assert_eq!(names(writes_plainly), "mset psetex set setex");
        assert_eq!(
            names(always_renews),
            "expire expireat lock.renew lock.renewall pexpire pexpireat"
        );
        assert_eq!(names(takes_away), "flushall flushdb move rename renamenx swapdb");
        assert_eq!(names(is_failover), "lockwheel|failover");
    }
}

//! `LOCK.*`: native locks. Clients that wait form a queue, first in first out; every grant has a
//! fencing token; an owner may hold a lock several times, share it, or hold permits of a semaphore;
//! and a lock may be bound to the connection that acquired it.
//!
//! A lock is a key of its own type. The key has the latest deadline of its holds; an expired hold
//! has no effect. When the first permits of a semaphore expire, the first client that waits for
//! permits is served again.
//!
//! Invariants: a client is granted a lock only if no other client waits for it, or if it is the
//! first of those that wait. Tokens only grow.

use lockwheel_resp::Reply;

use super::{map, number, scan};
use crate::command::argument::{self as arg, Argument};
use crate::command::{
    Arity, Caller, Categories, Command, FindKeys, Flags, Group, KeySpec, LockMeaning, integer, is,
};
use crate::error::Error;
use crate::glob;
use crate::limits::{LOCK_HOLDS_MAX, LOCK_LEASES_MAX, LOCK_META_BYTES_MAX, LOCK_NAME_BYTES_MAX};
use crate::run::context::Context;
use crate::sessions::waiters::WaitKind;
use crate::store::dict::Slot;
use crate::store::events::Events;
use crate::store::lock::{Hold, Lease, Leases, Lock, LockMode};
use crate::store::lock_notes::{MadeBy, OwnerChange};
use crate::store::packed::Items;
use crate::store::records::NewValue;
use crate::store::value::{Typed, ValueRef};
use crate::timing::time::{Millis, Time};
use lockwheel_defects::defect;

/// How long a bound lock is held after its connection has ended, by default, in milliseconds: a
/// client that reconnects at once keeps its lock.
const GRACE_MS_DEFAULT: i64 = 2_000;

const LOCK: Command = Command {
    group: Group::Lock,
    flags: Flags::WRITE.union(Flags::FAST),
    keys: &[KeySpec::one(&["RW", "access", "update"])],
    complexity: "O(N) in the number of owners of the lock",
    ..Command::BASE
};

const READ: Command = Command {
    flags: Flags::READONLY,
    keys: &[KeySpec::one(&["RO", "access"])],
    lock: LockMeaning::Inspect,
    ..LOCK
};

const TTL: Argument = arg::integer("milliseconds").token("TTL");
const TOKEN: Argument = arg::integer("token").token("TOKEN").optional();

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "lock.acquire",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
        doc: "Acquires a lock for an owner until the end of its lease; may wait for it in a queue. \
              Returns a fencing token, or how the lock is held. A lock has at most 10,000 owners.",
        arguments: &[
            arg::key("key"),
            arg::string("owner"),
            TTL,
            arg::integer("milliseconds").token("WAIT").optional(),
            arg::one_of(
                "mode",
                &[
                    arg::word("SHARED"),
                    arg::block(
                        "permits",
                        &[
                            arg::integer("count").token("PERMITS"),
                            arg::integer("permits").token("OF"),
                        ],
                    ),
                ],
            )
            .optional(),
            arg::block(
                "bound",
                &[arg::word("BOUND"), arg::integer("milliseconds").token("GRACE").optional()],
            )
            .optional(),
            arg::string("text").token("META").optional(),
        ],
        lock: LockMeaning::Acquire,
        adds_nothing: Some(has_hold),
        example: "LOCK.ACQUIRE lock me TTL 9000; LOCK.ACQUIRE lock you TTL 9000 => \
                  [\"status\", \"refused\", \"holders\", 1, \"ttl\", 9000, \"queue\", 0]",
        run: acquire,
        ..LOCK
    },
    Command {
        name: "lock.force",
        arity: Arity::Exactly(2),
        keys: &[KeySpec::one(&["RW", "delete"])],
        categories: Categories::LOCKFORCE,
        doc: "Releases a lock although its owners may still rely on it. Returns 1, or 0 if there \
              is none.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Release,
        example: "LOCK.ACQUIRE lock me TTL 9000; LOCK.FORCE lock => 1",
        run: force,
        ..LOCK
    },
    Command {
        name: "lock.info",
        arity: Arity::Exactly(2),
        complexity: "O(N) in the number of owners of the lock and of clients that wait for it",
        doc: "Returns the owners of a lock and the clients that wait for it, or nil if there is \
              none.",
        arguments: &[arg::key("key")],
        example: "LOCK.INFO lock => nil",
        run: info,
        ..READ
    },
    Command {
        name: "lock.list",
        arity: Arity::AtLeast(1),
        keys: &[],
        complexity: "O(N) in the number of keys that are examined",
        doc: "Returns locks with their owners, of keys that the user may read, and where to go on.",
        arguments: &[
            arg::pattern("pattern").token("MATCH").optional(),
            arg::string("owner").token("OWNER").optional(),
            arg::integer("cursor").token("CURSOR").optional(),
            arg::integer("count").token("COUNT").optional(),
        ],
        example: "LOCK.LIST OWNER me => [\"0\", []]",
        run: list,
        ..READ
    },
    Command {
        name: "lock.release",
        arity: Arity::AtLeast(3),
        keys: &[KeySpec::one(&["RW", "access", "delete"])],
        doc: "Releases a lock once, or as often as its owner holds it. Returns how often the owner \
              still holds it, or nil if it did not.",
        arguments: &[arg::key("key"), arg::string("owner"), TOKEN, arg::word("ALL").optional()],
        lock: LockMeaning::Release,
        example: "LOCK.ACQUIRE lock me TTL 9000; LOCK.RELEASE lock me => 0",
        run: release,
        ..LOCK
    },
    Command {
        name: "lock.renew",
        arity: Arity::AtLeast(5),
        doc: "Sets how much longer an owner holds a lock. Returns 1, or 0 if it does not hold it.",
        arguments: &[arg::key("key"), arg::string("owner"), TTL, TOKEN],
        lock: LockMeaning::Renew,
        example: "LOCK.ACQUIRE lock me TTL 9000; LOCK.RENEW lock me TTL 30000 => 1",
        run: renew,
        ..LOCK
    },
    Command {
        name: "lock.renewall",
        arity: Arity::AtLeast(5),
        keys: &[KeySpec {
            flags: &["RW", "access", "update"],
            begin: 4,
            find: FindKeys::Range { last: -1, step: 1 },
        }],
        complexity: "O(N) in the number of keys and of owners of these locks",
        doc: "Sets how much longer an owner holds locks. Returns 1 or 0 for each, as LOCK.RENEW.",
        arguments: &[arg::string("owner"), TTL, arg::key("key").multiple()],
        lock: LockMeaning::Renew,
        example: "LOCK.ACQUIRE lock me TTL 9000; LOCK.RENEWALL me TTL 30000 lock other => [1, 0]",
        run: renew_all,
        ..LOCK
    },
    Command {
        name: "lock.validate",
        arity: Arity::Exactly(3),
        doc: "Returns 1 if the grant with a fencing token still counts, 0 if it has ended: then a \
              later grant may have followed.",
        arguments: &[arg::key("key"), arg::integer("token")],
        example: "LOCK.VALIDATE lock 7 => 0",
        run: validate,
        ..READ
    },
];

// --- acquiring ---

/// Whether the owner has a hold already: see [`Command::adds_nothing`].
fn has_hold(value: ValueRef<'_>, argv: &[&[u8]]) -> bool {
    let holds = <Box<Lock>>::of(value).into_iter().flat_map(|lock| lock.stored());
    argv.get(2).is_some_and(|owner| holds.into_iter().any(|hold| *hold.owner == **owner))
}

/// The arguments of `LOCK.ACQUIRE`.
struct Request<'a> {
    key: &'a [u8],
    owner: &'a [u8],
    deadline: Millis,
    /// How long the client may wait.
    wait: Option<Millis>,
    mode: LockMode,
    grace_ms: Option<i64>,
    meta: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    fn read(arguments: &[&'a [u8]], time: Time) -> Result<Request<'a>, Error> {
        let [key, owner, ttl, ttl_ms, options @ ..] = arguments else { return Err(Error::Syntax) };
        if !is(ttl, "ttl") {
            return Err(Error::Syntax);
        }
        let mut request = Request {
            key,
            owner: checked_owner(owner)?,
            deadline: lease_end(ttl_ms, time, "lock.acquire")?,
            wait: None,
            mode: LockMode::Exclusive,
            grace_ms: None,
            meta: None,
        };
        let mut rest = options;
        while let [word, after @ ..] = rest {
            rest = request.read_option(word, after, time)?;
        }
        Ok(request)
    }

    /// Reads one option, which must not be given twice; returns what follows.
    fn read_option<'r>(
        &mut self,
        word: &[u8],
        after: &'r [&'a [u8]],
        time: Time,
    ) -> Result<&'r [&'a [u8]], Error> {
        Ok(match *after {
            [wait, ref rest @ ..] if is(word, "wait") && self.wait.is_none() => {
                let wait = Millis(span(wait, "WAIT")?);
                time.after(wait).ok_or(Error::OutOfRange("WAIT"))?;
                self.wait = Some(wait);
                rest
            }
            ref rest if is(word, "shared") && self.mode == LockMode::Exclusive => {
                self.mode = LockMode::Shared;
                rest
            }
            [count, of_word, of, ref rest @ ..]
                if is(word, "permits") && is(of_word, "of") && self.mode == LockMode::Exclusive =>
            {
                self.mode = permits(count, of)?;
                rest
            }
            _ if is(word, "bound") && self.grace_ms.is_some() => return Err(Error::Syntax),
            [grace_word, grace, ref rest @ ..] if is(word, "bound") && is(grace_word, "grace") => {
                self.grace_ms = Some(span(grace, "GRACE")?);
                rest
            }
            ref rest if is(word, "bound") => {
                self.grace_ms = Some(GRACE_MS_DEFAULT);
                rest
            }
            [meta, ref rest @ ..] if is(word, "meta") && self.meta.is_none() => {
                if meta.len() > LOCK_META_BYTES_MAX {
                    let max = LOCK_META_BYTES_MAX;
                    return Err(Error::text(format!("ERR META is longer than {max} bytes")));
                }
                self.meta = Some(meta);
                rest
            }
            _ => return Err(Error::Syntax),
        })
    }
}

fn checked_owner(owner: &[u8]) -> Result<&[u8], Error> {
    match owner.len() {
        1..=LOCK_NAME_BYTES_MAX => Ok(owner),
        _ => Err(Error::text(format!("ERR the owner must have 1 to {LOCK_NAME_BYTES_MAX} bytes"))),
    }
}

/// The end of a lease of `ttl_ms` milliseconds.
fn lease_end(ttl_ms: &[u8], time: Time, command: &'static str) -> Result<Millis, Error> {
    let ttl_ms = integer(ttl_ms)?;
    let end = time.after(Millis(ttl_ms)).filter(|_| ttl_ms > 0);
    end.ok_or(Error::InvalidExpire(command))
}

/// A number of milliseconds that may be 0.
fn span(argument: &[u8], name: &str) -> Result<i64, Error> {
    let span_ms = integer(argument)?;
    if span_ms < 0 {
        return Err(Error::text(format!("ERR {name} must not be negative")));
    }
    Ok(span_ms)
}

fn permits(count: &[u8], of: &[u8]) -> Result<LockMode, Error> {
    let permits = |argument| integer(argument).map(u32::try_from);
    match (permits(count)?, permits(of)?) {
        (Ok(count), Ok(of)) if 0 < count && count <= of => Ok(LockMode::Permits { count, of }),
        _ => Err(Error::line("ERR PERMITS must be from 1 to the number after OF")),
    }
}

/// `LOCK.ACQUIRE`: replies with a fencing token, or how the lock is held.
fn acquire(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let request = Request::read(&argv[1..], context.time)?;
    let key = request.key;
    let queued = context.begin_acquire(key);
    if context.caller == Caller::TimedOutWaiter {
        return Ok(denial(context, key, "timeout", queued.saturating_sub(1)));
    }
    // A waiter that is served is the first of the queue.
    let is_first = context.caller == Caller::Waiter || queued == 0;
    if let Some(granted) = grant(context, &request, is_first)? {
        if context.caller == Caller::Waiter && request.mode == LockMode::Exclusive {
            // Only the new owner could acquire the lock as well.
            let is_owner = |mut arguments: Items<'_>| arguments.nth(1) == Some(request.owner);
            context.stop_queue_unless(is_owner);
        }
        return Ok(granted);
    }
    let slot = context.find(key);
    if let Some(wait) = request.wait.filter(|wait| wait.0 > 0)
        && let Some(until) = context.time.after(wait)
        && let Some(waits) = context.wait_for(WaitKind::Lock, &[key], Some(until), argv)
    {
        if context.caller == Caller::Client {
            context.note_wait_for_lock(key);
        }
        let retry = slot.filter(|_| is_first && request.mode.permits().is_some());
        let retry_at = retry.and_then(|slot| lock_at(context, slot)?.next_deadline(context.time));
        context.retry_at(retry_at);
        return Ok(waits);
    }
    if let Some(slot) = slot {
        context.note_refused_lock(slot);
    }
    Ok(denial(context, key, "refused", queued))
}

fn lock_at<'c>(context: &'c Context<'_>, slot: Slot) -> Option<&'c Lock> {
    <Box<Lock>>::of(context.record(slot).value())
}

/// The reply to a client that does not get a lock.
fn denial(context: &mut Context<'_>, key: &[u8], status: &'static str, queued: usize) -> Reply {
    let time = context.time;
    let lock = context.find(key).and_then(|slot| lock_at(context, slot));
    let holders = lock.map_or(0, |lock| lock.holds(time).count());
    let ttl = lock.and_then(Lock::deadline).map_or(0, |deadline| time.remaining(deadline).0);
    map([
        ("status", Reply::bulk(status)),
        ("holders", number(holders as u64)),
        ("ttl", Reply::Integer(ttl)),
        ("queue", number(queued as u64)),
    ])
}

/// Grants the lock if that is possible. `is_first` is whether no client before this one waits for
/// it.
fn grant(
    context: &mut Context<'_>,
    request: &Request<'_>,
    is_first: bool,
) -> Result<Option<Reply>, Error> {
    let (key, owner, time) = (request.key, request.owner, context.time);
    let is_first = is_first || defect!(GrantOvertakesQueue);
    let found = context.find_to_write::<Box<Lock>>(key)?;
    let found_slot = found.map(|(slot, _)| slot);
    if let Some((slot, lock)) = found {
        check_mode(lock, request.mode)?;
        if let Some(hold) = lock.hold_of(owner, time) {
            let hold = hold.clone();
            return acquire_again(context, slot, request, hold).map(Some);
        }
        if !lock.admits(request.mode, time) || !is_first {
            return Ok(None);
        }
        if lock.stored().len() >= LOCK_HOLDS_MAX {
            let line = format!("ERR the lock has {LOCK_HOLDS_MAX} owners, which is the maximum");
            return Err(Error::text(line));
        }
    } else if !is_first {
        return Ok(None);
    }
    let client = context.client.serial;
    let token = context.issue_token().ok_or(Error::line("ERR no fencing tokens are left"))?;
    context.make_conditional();
    let (deadline, grace_ms) = (request.deadline, request.grace_ms);
    let lease = Lease { count: 1, deadline, client, grace_ms };
    let (mode, since, meta) = (request.mode, time.now, request.meta.map(Into::into));
    let slot = match found_slot {
        Some(slot) => slot,
        None => context.add(key, NewValue::Value(Box::<Lock>::default().into())),
    };
    context.change_owners(slot, OwnerChange::Acquired);
    let hold = Hold { owner: owner.into(), mode, token, since, leases: [lease].into(), meta };
    let reply = grant_reply(&hold, time);
    context.change_lock(slot, key, |lock| lock.grant(hold));
    if grace_ms.is_some() {
        context.bind_lock(key, true);
    }
    context.changed(Events::MODULE, "lock.acquire", key);
    Ok(Some(reply))
}

fn grant_reply(hold: &Hold, time: Time) -> Reply {
    map([
        ("status", Reply::bulk("acquired")),
        ("token", number(hold.token)),
        ("ttl", Reply::Integer(time.remaining(hold.deadline()).0)),
        ("count", number(hold.count(time))),
    ])
}

/// Fails if a lock is requested as a semaphore, a semaphore as a lock, or a semaphore with another
/// number of permits.
fn check_mode(lock: &Lock, mode: LockMode) -> Result<(), Error> {
    match (lock.mode().map(LockMode::permits), mode.permits()) {
        (Some(Some(of)), wanted) if wanted != Some(of) => Err(Error::text(format!(
            "ERR the key holds a semaphore with {of} permits: use PERMITS n OF {of}"
        ))),
        (Some(None), Some(_)) => {
            Err(Error::line("ERR the key holds a lock, which has no permits: do not use PERMITS"))
        }
        _ => Ok(()),
    }
}

/// Grants the lock again to an owner that holds it. The leases of its other connections remain.
fn acquire_again(
    context: &mut Context<'_>,
    slot: Slot,
    request: &Request<'_>,
    mut hold: Hold,
) -> Result<Reply, Error> {
    match (hold.mode, request.mode) {
        (LockMode::Shared, LockMode::Exclusive) => {
            return Err(Error::line(
                "ERR the owner shares the lock: it must release it before it can hold it alone",
            ));
        }
        (LockMode::Permits { count, .. }, LockMode::Permits { count: wanted, .. })
            if count != wanted =>
        {
            return Err(Error::text(format!(
                "ERR the owner holds {count} permits: it must release them before it can hold \
                 {wanted}"
            )));
        }
        _ => {}
    }
    let (key, time, client) = (request.key, context.time, context.client.serial);
    // The first of several users of the lock still relies on its lease.
    let deadline = hold.deadline().max(request.deadline);
    hold.leases.retain(|lease| !time.reached(lease.deadline));
    for lease in hold.leases.iter_mut().filter(|lease| !lease.is_in_grace()) {
        lease.deadline = deadline;
    }
    let held = hold.leases.len();
    match hold.leases.iter_mut().find(|lease| lease.client == client) {
        Some(lease) => {
            lease.count = lease.count.saturating_add(1);
            lease.grace_ms = request.grace_ms.or(lease.grace_ms);
        }
        None if held >= LOCK_LEASES_MAX => {
            return Err(Error::text(format!(
                "ERR the owner holds the lock on {LOCK_LEASES_MAX} connections, which is the \
                 maximum"
            )));
        }
        None => {
            let grace_ms = request.grace_ms;
            hold.leases.push(Lease { count: 1, deadline, client, grace_ms });
        }
    }
    context.change_owners(slot, OwnerChange::None);
    set_leases(context, slot, (key, &hold.owner), &hold.leases);
    context.changed(Events::MODULE, "lock.acquire", key);
    Ok(grant_reply(&hold, time))
}

/// Sets the leases of an owner, and binds the lock to the client if one of them is.
fn set_leases(
    context: &mut Context<'_>,
    slot: Slot,
    (key, owner): (&[u8], &[u8]),
    leases: &Leases,
) {
    let client = context.client.serial;
    context.change_lock(slot, key, |lock| lock.set_leases(owner, leases.clone()));
    if leases.iter().any(|lease| lease.is_bound_to(client)) {
        context.bind_lock(key, false);
    }
}

// --- renewing and releasing ---

/// Reads `TOKEN n` and `ALL` in any order.
fn token_and_all(mut rest: &[&[u8]]) -> Result<(Option<u64>, bool), Error> {
    let (mut token, mut all) = (None, false);
    while let [word, after @ ..] = rest {
        rest = match after {
            [number, after @ ..] if is(word, "token") && token.is_none() => {
                token = Some(read_token(number)?);
                after
            }
            after if is(word, "all") && !all => {
                all = true;
                after
            }
            _ => return Err(Error::Syntax),
        };
    }
    Ok((token, all))
}

fn read_token(argument: &[u8]) -> Result<u64, Error> {
    u64::try_from(integer(argument)?).map_err(|_| Error::line("ERR a token is not negative"))
}

/// The hold of an owner, with this token if one is given, and where it is.
fn find_hold(
    context: &mut Context<'_>,
    key: &[u8],
    owner: &[u8],
    token: Option<u64>,
) -> Result<Option<(Slot, Hold)>, Error> {
    let time = context.time;
    let Some((slot, lock)) = context.find_to_write::<Box<Lock>>(key)? else { return Ok(None) };
    let hold = lock.hold_of(owner, time);
    let hold = hold.filter(|hold| token.is_none_or(|token| token == hold.token));
    Ok(hold.cloned().map(|hold| (slot, hold)))
}

/// `LOCK.RENEW`: replies with 1 if the owner holds the lock, else 0.
fn renew(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, owner) = (argv[1], argv[2]);
    let deadline = renewed_lease(context, &argv[3..5])?;
    let (token, all) = token_and_all(&argv[5..])?;
    if all {
        return Err(Error::Syntax);
    }
    renew_one(context, (key, owner), deadline, token).map(Reply::from)
}

/// `LOCK.RENEWALL`: replies with 1 or 0 for each key.
fn renew_all(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let deadline = renewed_lease(context, &argv[2..4])?;
    let mut renewed = Vec::with_capacity(argv.len() - 4);
    for key in &argv[4..] {
        // A key of another type is no lock of this owner.
        let is_renewed = renew_one(context, (key, argv[1]), deadline, None).unwrap_or(false);
        renewed.push(Reply::from(is_renewed));
    }
    Ok(Reply::Array(renewed))
}

fn renewed_lease(context: &Context<'_>, ttl: &[&[u8]]) -> Result<Millis, Error> {
    let [word, ttl_ms] = ttl else { return Err(Error::Syntax) };
    if !is(word, "ttl") {
        return Err(Error::Syntax);
    }
    lease_end(ttl_ms, context.time, context.name)
}

/// Sets the lease of an owner; returns whether it holds the lock.
fn renew_one(
    context: &mut Context<'_>,
    (key, owner): (&[u8], &[u8]),
    deadline: Millis,
    token: Option<u64>,
) -> Result<bool, Error> {
    let Some((slot, hold)) = find_hold(context, key, owner, token)? else { return Ok(false) };
    // All leases become one of the connection that renews. It is bound if all of them were.
    let (count, client) = (hold.count(context.time), context.client.serial);
    let graces = hold.leases(context.time).map(|lease| lease.grace_ms);
    let grace_ms = graces.reduce(|a, b| Some(a?.max(b?))).flatten();
    let lease = Lease { count, deadline, client, grace_ms };
    set_leases(context, slot, (key, owner), &[lease].into());
    context.changed(Events::MODULE, "lock.renew", key);
    Ok(true)
}

/// `LOCK.RELEASE`: replies with how often the owner still holds the lock, or nil if it did not.
fn release(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, owner) = (argv[1], argv[2]);
    let (token, all) = token_and_all(&argv[3..])?;
    let Some((slot, hold)) = find_hold(context, key, owner, token)? else { return Ok(Reply::Null) };
    let time = context.time;
    let leases = if all { Leases::new() } else { without_one(&hold, context.client.serial, time) };
    let left = leases.iter().fold(0_u64, |count, lease| count.saturating_add(lease.count));
    let is_shared = lock_at(context, slot)
        .is_some_and(|lock| lock.holds(time).any(|other| other.owner != hold.owner));
    context.changed(Events::MODULE, "lock.release", key);
    if left == 0 && !is_shared {
        context.remove_lock(key);
    } else if left > 0 {
        context.change_owners(slot, OwnerChange::None);
        context.change_lock(slot, key, |lock| lock.set_leases(owner, leases.clone()));
    } else {
        context.change_owners(slot, OwnerChange::Released);
        context.change_lock(slot, key, |lock| lock.end(owner));
    }
    for lease in hold.leases.iter().filter(|lease| lease.grace_ms.is_some()) {
        context.unbind_lock(key, lease.client);
    }
    Ok(number(left))
}

/// The leases of an owner after it has released the lock once on a connection: the count of
/// the connection's lease is reduced, or without such a lease that of the oldest.
fn without_one(hold: &Hold, client: u64, time: Time) -> Leases {
    let mut leases: Leases = hold.leases(time).copied().collect();
    let own = leases.iter().position(|lease| lease.client == client).unwrap_or(0);
    leases[own].count -= 1;
    leases.retain(|lease| lease.count > 0);
    leases
}

/// `LOCK.FORCE`: replies with 1 if there was a lock, else 0.
fn force(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    if context.find_to_write::<Box<Lock>>(key)?.is_none() {
        return Ok(Reply::from(false));
    }
    context.set_made_by(MadeBy::Forced);
    context.changed(Events::MODULE, "lock.force", key);
    context.remove_emptied(key);
    Ok(Reply::from(true))
}

// --- reading ---

/// `LOCK.INFO`: replies with the owners and the queue, or nil.
fn info(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let (database, time) = (context.database, context.time);
    if context.read_as::<Box<Lock>>(key)?.is_none() {
        return Ok(Reply::Null);
    }
    let queue = context.engine().sessions.lock_queue(database, key);
    let queue = queue.map(|(client, arguments, until)| {
        let request = Request::read(&arguments, time);
        let (owner, mode) = request.map_or((&b""[..], ""), |it| (it.owner, it.mode.name()));
        map([
            ("owner", Reply::bulk(owner)),
            ("client", number(client.serial)),
            ("mode", Reply::bulk(mode)),
            ("wait", Reply::Integer(until.map_or(0, |until| time.remaining(until).0))),
        ])
    });
    let queue = Reply::Array(queue.collect());
    let Some(slot) = context.find(key) else { return Ok(Reply::Null) };
    let Some(lock) = lock_at(context, slot) else { return Ok(Reply::Null) };
    Ok(map(described(lock, time).into_iter().chain([("queue", queue)])))
}

/// What `LOCK.INFO` and `LOCK.LIST` show of a lock.
fn described(lock: &Lock, time: Time) -> [(&'static str, Reply); 4] {
    let mode = lock.mode().unwrap_or(LockMode::Exclusive);
    let ttl = lock.deadline().map_or(0, |deadline| time.remaining(deadline).0);
    [
        ("mode", Reply::bulk(mode.name())),
        ("permits", number(mode.permits().map_or(0, u64::from))),
        ("ttl", Reply::Integer(ttl)),
        ("holders", Reply::Array(lock.holds(time).map(|hold| holder(hold, time)).collect())),
    ]
}

fn holder(hold: &Hold, time: Time) -> Reply {
    let Hold { owner, mode, token, since, meta, .. } = hold;
    let lease = hold.last_lease();
    let permits = match mode {
        LockMode::Permits { count, .. } => u64::from(*count),
        LockMode::Exclusive | LockMode::Shared => 0,
    };
    map([
        ("owner", Reply::bulk(owner)),
        ("token", number(*token)),
        ("ttl", Reply::Integer(time.remaining(hold.deadline()).0)),
        ("count", number(hold.count(time))),
        ("permits", number(permits)),
        ("held", Reply::Integer(time.now.0.saturating_sub(since.0))),
        ("client", number(lease.map_or(0, |lease| lease.client))),
        ("grace", lease.and_then(|lease| lease.grace_ms).map_or(Reply::Null, Reply::Integer)),
        ("meta", meta.as_deref().map_or(Reply::Null, Reply::bulk)),
    ])
}

/// `LOCK.LIST`: replies with a cursor and locks.
fn list(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (mut cursor, mut owner, mut options) = (0, None, Vec::new());
    for pair in argv[1..].chunks(2) {
        match *pair {
            [word, value] if is(word, "cursor") => cursor = scan::cursor(value)?,
            [word, value] if is(word, "owner") => owner = Some(value),
            [word, value] => options.extend([word, value]),
            _ => return Err(Error::Syntax),
        }
    }
    let options = scan::options(&options, false)?;
    let time = context.time;
    let readable = context.engine().readable_keys(context.client, argv);
    let records = context.selected().records();
    let (slots, next) = records.scan(cursor, options.count);
    let mut shown = Vec::new();
    for slot in slots {
        let record = records.get(slot);
        let Some(lock) = <Box<Lock>>::of(record.value()) else { continue };
        if lock.holds(time).next().is_some()
            && options.pattern.is_none_or(|pattern| glob::matches(pattern, record.key()))
            && owner.is_none_or(|owner| lock.hold_of(owner, time).is_some())
            && readable.contains(record.key())
        {
            let key = ("key", Reply::bulk(record.key()));
            shown.push(map([key].into_iter().chain(described(lock, time))));
        }
    }
    Ok(Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(shown)]))
}

/// `LOCK.VALIDATE`: replies with 1 if the grant with this token still counts, else 0.
fn validate(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (token, time) = (read_token(argv[2])?, context.time);
    let lock = context.read_as::<Box<Lock>>(argv[1])?;
    Ok(Reply::from(lock.is_some_and(|lock| lock.holds(time).any(|hold| hold.token == token))))
}

#[cfg(test)]
mod tests {
    use crate::limits::LOCK_LEASES_MAX;
    use crate::settings::Settings;
    use crate::testing::{Stage, check, check_events, words};
    use crate::timing::time::Millis;

    const REFUSED: &str = "[\"status\", \"refused\", ...";
    const ACQUIRED: &str = "[\"status\", \"acquired\", ...";
    const TIMEOUT: &str = "[\"status\", \"timeout\", ...";

    /// Checks a conversation, with its abbreviations filled in: in database 0, and with all clients
    /// in another one, where the same is true.
    fn talk(conversation: &str) {
        check(&filled(conversation));
        if !conversation.contains("SWAPDB") {
            let mut clients: Vec<&str> = Vec::new();
            for step in conversation.split("; ") {
                let client = step.split_once(['>', '<', '!']).map_or("a", |(client, _)| client);
                let client = if client.len() == 1 { client } else { "a" };
                if !clients.contains(&client) {
                    clients.push(client);
                }
            }
            let selects = clients.iter().map(|client| format!("{client}> SELECT 5; "));
            check(&(selects.collect::<String>() + &filled(conversation)));
        }
    }

    fn filled(conversation: &str) -> String {
        conversation
            .replace("ACQ ", "LOCK.ACQUIRE ")
            .replace("REFUSED", REFUSED)
            .replace("ACQUIRED", ACQUIRED)
            .replace("TIMEOUT", TIMEOUT)
    }

    #[test]
    fn owner_whose_shared_hold_has_expired_holds_the_lock_anew() {
        talk(
            "ACQ k a TTL 100 SHARED; ACQ k b TTL 1000 SHARED; +200ms; ACQ k a TTL 500 SHARED => \
             ACQUIRED; LOCK.RENEW k a TTL 500 => 1; LOCK.RELEASE k b => 0; ACQ k c TTL 9 => \
             REFUSED; LOCK.RELEASE k a => 0; EXISTS k => 0",
        );
        talk(
            "ACQ s a TTL 100 PERMITS 1 OF 2; ACQ s b TTL 1000 PERMITS 1 OF 2; +200ms; \
             ACQ s a TTL 500 PERMITS 1 OF 2 => ACQUIRED; ACQ s c TTL 9 PERMITS 1 OF 2 => REFUSED; \
             LOCK.RELEASE s a => 0",
        );
    }

    #[test]
    fn owner_that_waits_twice_is_granted_both_unless_another_waits_in_between() {
        talk(
            "ACQ k a TTL 100; b> ACQ k x TTL 100 WAIT 99; c> ACQ k x TTL 100 WAIT 99; \
             d> ACQ k y TTL 100 WAIT 99; LOCK.RELEASE k a; b< => ACQUIRED; c< => \
             [..., \"count\", 2]; d< => ; LOCK.RELEASE k x => 1; LOCK.RELEASE k x; d< => ACQUIRED",
        );
        talk(
            "ACQ k a TTL 100; b> ACQ k x TTL 100 WAIT 99; c> ACQ k y TTL 100 WAIT 99; \
             d> ACQ k x TTL 100 WAIT 99; LOCK.RELEASE k a; b< => ACQUIRED; c< => ; d< => ; \
             LOCK.RELEASE k x; c< => ACQUIRED; d< => ; LOCK.RELEASE k y; d< => ACQUIRED",
        );
    }

    #[test]
    fn lock_is_held_by_one_owner_until_its_lease_ends() {
        talk(
            "ACQ k a TTL 10 => ACQUIRED; ACQ k b TTL 10 => REFUSED; +9ms; ACQ k b TTL 10 => \
             [\"status\", \"refused\", \"holders\", 1, \"ttl\", 1, \"queue\", 0]; +1ms; \
             ACQ k b TTL 10 => ACQUIRED",
        );
        talk("ACQ k a TTL 10; LOCK.RELEASE k b => nil; LOCK.RELEASE k a => 0; EXISTS k => 0");
        talk(
            "ACQ k a TTL 10; LOCK.RENEW k a TTL 30 => 1; +29ms; PTTL k => 1; +1ms; TYPE k => none",
        );
        talk("ACQ k a TTL 10; LOCK.RENEW k b TTL 30 => 0; +10ms; LOCK.RENEW k a TTL 30 => 0");
        talk("ACQ k a TTL 10; TYPE k => lock; OBJECT ENCODING k => \"lock\"; DEL k => 1");
    }

    #[test]
    fn owner_may_hold_a_lock_several_times() {
        talk(
            "ACQ k a TTL 20 => ACQUIRED; ACQ k a TTL 10 => ...\"ttl\", 20, \"count\", 2]; \
             ACQ k a TTL 30 => ...\"ttl\", 30, \"count\", 3]; LOCK.RELEASE k a => 2; PTTL k => 30; \
             LOCK.RELEASE k a ALL => 0; ACQ k b TTL 10 => ACQUIRED",
        );
    }

    #[test]
    fn readers_share_a_lock_and_do_not_overtake_a_writer() {
        talk(
            "ACQ k a TTL 90 SHARED => ACQUIRED; ACQ k b TTL 50 SHARED => ACQUIRED; \
             ACQ k c TTL 50 => REFUSED; w> ACQ k w TTL 50 WAIT 500; \
             ACQ k d TTL 50 SHARED => [\"status\", \"refused\", \"holders\", 2, \"ttl\", 90, \
             \"queue\", 1]; r> ACQ k r TTL 50 WAIT 500 SHARED; s> ACQ k s TTL 50 WAIT 500 SHARED; \
             LOCK.RELEASE k a => 0; w< => ; LOCK.RELEASE k b => 0; w< => ACQUIRED; r< => ; \
             LOCK.RELEASE k w => 0; r< => ACQUIRED; s< => ACQUIRED",
        );
        talk("ACQ k a TTL 9; ACQ k a TTL 9 SHARED => ACQUIRED; ACQ k b TTL 9 SHARED => REFUSED");
        talk("ACQ k a TTL 9 SHARED; ACQ k a TTL 9 => !ERR the owner shares the lock...");
    }

    #[test]
    fn permits_of_a_semaphore_are_given_in_order() {
        talk(
            "ACQ k a TTL 90 PERMITS 2 OF 3 => ACQUIRED; ACQ k b TTL 90 PERMITS 2 OF 3 => REFUSED; \
             b> ACQ k b TTL 90 PERMITS 2 OF 3 WAIT 500; ACQ k c TTL 90 PERMITS 1 OF 3 => REFUSED; \
             c> ACQ k c TTL 90 PERMITS 1 OF 3 WAIT 500; LOCK.RELEASE k a => 0; b< => ACQUIRED; \
             c< => ACQUIRED",
        );
        talk(
            "ACQ k a TTL 9 PERMITS 1 OF 3; ACQ k b TTL 9 PERMITS 1 OF 4 => \
             !ERR the key holds a semaphore with 3 permits: use PERMITS n OF 3; \
             ACQ k b TTL 9 => !ERR the key holds a semaphore with 3 permits...; \
             ACQ k a TTL 9 PERMITS 2 OF 3 => !ERR the owner holds 1 permits...",
        );
        talk("ACQ k a TTL 9; ACQ k b TTL 9 PERMITS 1 OF 3 => !ERR the key holds a lock, ...");
    }

    #[test]
    fn permits_whose_lease_ends_wake_the_first_waiter() {
        talk(
            "ACQ k a TTL 10 PERMITS 1 OF 2; ACQ k b TTL 90 PERMITS 1 OF 2; \
             c> ACQ k c TTL 90 PERMITS 1 OF 2 WAIT 500; +9ms; c< => ; +1ms; c< => ACQUIRED; \
             LOCK.INFO k => ...\"owner\", \"b\"...\"owner\", \"c\"...",
        );
        talk(
            "ACQ k a TTL 10 PERMITS 2 OF 2; b> ACQ k b TTL 90 PERMITS 2 OF 2 WAIT 500; \
             LOCK.RENEW k a TTL 30 => 1; +29ms; b< => ; +1ms; b< => ACQUIRED",
        );
    }

    #[test]
    fn waiters_are_served_in_order() {
        talk(
            "ACQ k a TTL 90; b> ACQ k b TTL 20 WAIT 500; c> ACQ k c TTL 20 WAIT 500; \
             ACQ k d TTL 9 => ...\"queue\", 2]; LOCK.RELEASE k a => 0; b< => ACQUIRED; c< => ; \
             +19ms; c< => ; +1ms; c< => ACQUIRED",
        );
        // Commands of any kind that remove the key make room.
        for removal in ["DEL k", "LOCK.FORCE k", "FLUSHALL", "PING; +90ms"] {
            talk(&format!("ACQ k a TTL 90; b> ACQ k b TTL 20 WAIT 500; {removal}; b< => ACQUIRED"));
        }
    }

    #[test]
    fn wait_ends_with_the_state_of_the_lock() {
        talk(
            "ACQ k a TTL 90; b> ACQ k b TTL 9 WAIT 50; c> ACQ k c TTL 9 WAIT 80; +49ms; b< => ; \
             +1ms; b< => [\"status\", \"timeout\", \"holders\", 1, \"ttl\", 40, \"queue\", 1]; \
             c< => ; LOCK.RELEASE k a; c< => ACQUIRED",
        );
        talk("b> ACQ k a TTL 90; b> ACQ k b TTL 9 WAIT 50; CLIENT UNBLOCK 1 => 1; b< => TIMEOUT");
        talk("ACQ k a TTL 9; MULTI; ACQ k b TTL 9 WAIT 50; EXEC => [[\"status\", \"refused\", ...");
        talk(
            "ACQ k a TTL 9; EVAL \"return redis.call('LOCK.ACQUIRE', 'k', 'b', 'TTL', '9', 'WAIT', \
             '50')\" 0 => REFUSED",
        );
    }

    #[test]
    fn waiter_that_leaves_lets_those_behind_it_pass() {
        for leave in ["+50ms", "CLIENT UNBLOCK 1", "CLIENT KILL ID 1", "b!"] {
            talk(&format!(
                "b> PING; c> PING; ACQ k a TTL 900 PERMITS 1 OF 2; \
                 b> ACQ k b TTL 9 PERMITS 2 OF 2 WAIT 50; \
                 c> ACQ k c TTL 9 PERMITS 1 OF 2 WAIT 500; c< => ; {leave}; c< => ACQUIRED"
            ));
        }
    }

    /// Shows L1, L2.
    #[test]
    fn tokens_grow_and_tell_whether_a_grant_counts() {
        let mut stage = Stage::new(Settings::default());
        let token = |stage: &mut Stage, command: &str| -> u64 {
            let reply = stage.step(&filled(command));
            let rest = reply.split("\"token\", ").nth(1).expect("a token");
            rest.split(',').next().and_then(|number| number.parse().ok()).expect("a number")
        };
        let first = token(&mut stage, "ACQ k a TTL 10");
        assert!(first > 1_700_000_000_000_000, "{first}");
        assert_eq!(token(&mut stage, "ACQ k a TTL 10"), first);
        let other = token(&mut stage, "ACQ l a TTL 10");
        assert!(other > first);
        stage.check(&format!("LOCK.VALIDATE k {first} => 1; LOCK.VALIDATE k {other} => 0"));
        stage.check(&format!("LOCK.RENEW k a TTL 10 TOKEN {other} => 0"));
        stage.check(&format!("LOCK.RELEASE k a TOKEN {other} => nil"));
        stage.check(&format!(
            "LOCK.RELEASE k a TOKEN {first} ALL => 0; LOCK.VALIDATE k {first} => 0"
        ));
        assert!(token(&mut stage, "ACQ k b TTL 10") > other);
        let lapses = token(&mut stage, "ACQ s a TTL 10 SHARED");
        let lasts = token(&mut stage, "ACQ s b TTL 90 SHARED");
        assert!(lasts > lapses);
        stage.check(&format!(
            "+9ms; LOCK.VALIDATE s {lapses} => 1; +1ms; LOCK.VALIDATE s {lapses} => 0; \
             LOCK.VALIDATE s {lasts} => 1"
        ));
    }

    /// Shows L12, L22.
    #[test]
    fn bound_lock_is_released_some_time_after_its_connection() {
        let bound = |grace: &str, steps: &str| {
            talk(&format!(
                "b> ACQ k b TTL 90000 BOUND{grace}; w> ACQ k w TTL 9 WAIT 90000; w< => ; b!; \
                 {steps}"
            ));
        };
        bound("", "+1999ms; w< => ; +1ms; w< => ACQUIRED");
        bound(" GRACE 50", "+49ms; w< => ; +1ms; w< => ACQUIRED");
        bound(" GRACE 0", "w< => ACQUIRED");
        bound("", "c> LOCK.RENEW k b TTL 5000 => 1; +4999ms; w< => ; +1ms; w< => ACQUIRED");
        bound(" GRACE 100000", "+89999ms; w< => ; +1ms; w< => ACQUIRED");
    }

    /// Shows L16.
    #[test]
    fn binding_moves_to_the_connection_that_renews() {
        talk(
            "b> ACQ k b TTL 9000 BOUND; c> LOCK.RENEW k b TTL 9000 => 1; b!; PTTL k => 9000; c!; \
             PTTL k => 2000",
        );
    }

    /// Shows L14, L15.
    #[test]
    fn connection_that_ends_takes_back_what_was_acquired_by_it() {
        let held = "PTTL k => 9000";
        // The second connection has released before it ends.
        talk(&format!(
            "b> ACQ k b TTL 9000 BOUND GRACE 0; c> ACQ k b TTL 9000 => ...\"count\", 2]; \
             c> LOCK.RELEASE k b => 1; c!; {held}; b!; EXISTS k => 0"
        ));
        talk(&format!(
            "b> ACQ k b TTL 9000; c> ACQ k b TTL 9000 BOUND GRACE 0; c> LOCK.RELEASE k b => 1; \
             c!; {held}; b!; {held}"
        ));
        // It has not.
        talk(
            "b> ACQ k b TTL 9000 BOUND GRACE 0; c> ACQ k b TTL 9000 BOUND GRACE 50; c!; +49ms; \
             LOCK.INFO k => ...\"count\", 2, ...; +1ms; LOCK.INFO k => ...\"count\", 1, ...; \
             LOCK.RELEASE k b => 0; EXISTS k => 0",
        );
        talk(
            "b> ACQ k b TTL 9000; c> ACQ k b TTL 90000 BOUND GRACE 0; c!; PTTL k => 90000; \
             LOCK.RELEASE k b => 0",
        );
        // What is in its grace is not prolonged by another connection.
        talk(
            "b> ACQ k b TTL 9000 BOUND GRACE 50; b!; c> ACQ k b TTL 9000 => ...\"count\", 2]; \
             +49ms; LOCK.INFO k => ...\"count\", 2, ...; +1ms; LOCK.INFO k => ...\"count\", 1, \
             ...; c> LOCK.RELEASE k b => 0; EXISTS k => 0",
        );
        // A connection releases its own first, then the oldest.
        talk(
            "b> ACQ k b TTL 9000 BOUND GRACE 0; c> ACQ k b TTL 9000; c> LOCK.RELEASE k b => 1; \
             b!; EXISTS k => 0",
        );
        talk(&format!(
            "b> ACQ k b TTL 9000 BOUND GRACE 0; c> ACQ k b TTL 9000; d> LOCK.RELEASE k b => 1; \
             b!; {held}; c!; {held}"
        ));
        // All moves to the connection that renews.
        talk(&format!(
            "b> ACQ k b TTL 90 BOUND GRACE 0; c> ACQ k b TTL 90 BOUND GRACE 0; \
             d> LOCK.RENEW k b TTL 9000 => 1; b!; c!; {held}; LOCK.INFO k => ...\"count\", 2, ...; \
             d!; EXISTS k => 0"
        ));
        // It is bound only if all of it was, with the longest grace.
        for acquired in [
            "b> ACQ k b TTL 90 BOUND GRACE 0; c> ACQ k b TTL 90",
            "b> ACQ k b TTL 90; c> ACQ k b TTL 90 BOUND GRACE 0",
        ] {
            talk(&format!("{acquired}; d> LOCK.RENEW k b TTL 9000 => 1; d!; {held}"));
        }
        talk(
            "b> ACQ k b TTL 90 BOUND GRACE 50; c> ACQ k b TTL 90 BOUND GRACE 0; \
             d> LOCK.RENEW k b TTL 9000 => 1; d!; PTTL k => 50",
        );
        // Two owners on one connection.
        talk(
            "b> ACQ k x TTL 90 SHARED BOUND GRACE 0; b> ACQ k y TTL 90 SHARED BOUND GRACE 0; \
             b> LOCK.RELEASE k x; b!; EXISTS k => 0",
        );
    }

    #[test]
    fn end_of_a_shared_hold_is_a_change_of_the_lock() {
        let shared = "ACQ k a TTL 10 SHARED; ACQ k b TTL 90 SHARED; ";
        let swapped = format!("{shared}SWAPDB 0 1; b> SELECT 1; ");
        for before in [shared, &swapped] {
            let watched = format!("{before}b> WATCH k; b> MULTI; b> PING; ");
            talk(&format!("{watched}+9ms; b> EXEC => [PONG]"));
            talk(&format!("{watched}+10ms; b> EXEC => nil-array"));
        }
        talk(
            "HELLO 3; CLIENT TRACKING ON; ACQ k a TTL 10 SHARED; b> ACQ k b TTL 90 SHARED; \
             b> ACQ k c TTL 20 SHARED; LOCK.INFO k; +10ms; a< => >[\"invalidate\", [\"k\"]]; \
             LOCK.INFO k; +9ms; a< => ; +1ms; a< => >[\"invalidate\", [\"k\"]]",
        );
        // The state of a lock that was released and taken again does not matter.
        talk(
            "ACQ k a TTL 10 SHARED; ACQ k b TTL 90 SHARED; DEL k; ACQ k a TTL 90 SHARED; +20ms; \
             LOCK.INFO k => ...\"owner\", \"a\"...",
        );
    }

    #[test]
    fn end_of_a_shared_hold_is_a_change_after_a_restart() {
        let mut stage = Stage::new(Settings::default());
        stage.check(&filled("ACQ k a TTL 10 SHARED; ACQ k b TTL 90 SHARED"));
        let time = stage.time();
        stage.engine.begin_loading(0, time.now, time);
        stage.engine.end_loading(time);
        stage.check("WATCH k; MULTI; PING; +10ms; EXEC => nil-array");
    }

    #[test]
    fn lease_that_ends_before_a_wait_is_granted_to_the_client_although_both_are_late() {
        let mut stage = Stage::new(Settings::default());
        stage.check(&filled(
            "ACQ k a TTL 100; b> ACQ k b TTL 9000 WAIT 150; c> ACQ k c TTL 9 WAIT 120; \
             ACQ s a TTL 100 PERMITS 1 OF 1; d> ACQ s d TTL 9000 PERMITS 1 OF 1 WAIT 101; +5000ms",
        ));
        stage.check(&filled("b< => ACQUIRED; c< => TIMEOUT; d< => ACQUIRED"));
    }

    #[test]
    fn leases_of_many_connections_are_limited() {
        let mut stage = Stage::new(Settings::default());
        for number in 0..LOCK_LEASES_MAX {
            let client = stage.client(&format!("client {number}"));
            stage.run(client, &words("LOCK.ACQUIRE k a TTL 9"));
        }
        stage.check(
            "LOCK.ACQUIRE k a TTL 9 => !ERR the owner holds the lock on 1000 connections...; \
             LOCK.RELEASE k a => 999; LOCK.ACQUIRE k a TTL 9 => ...\"count\", 1000]",
        );
    }

    #[test]
    fn waiters_stay_in_the_queue_while_memory_is_full() {
        let before = "ACQ k a TTL 9000; b> ACQ k b TTL 9000 WAIT 5000; \
                      c> ACQ k c TTL 9 WAIT 5000; CONFIG SET maxmemory 1; ";
        talk(&format!(
            "{before}LOCK.RENEW k a TTL 900 => 1; b< => ; LOCK.RELEASE k a => 0; b< => ACQUIRED; \
             c< => ; LOCK.FORCE k => 1; c< => ACQUIRED"
        ));
        talk(&format!(
            "{before}ACQ k a TTL 9 => ...\"count\", 2]; ACQ k c TTL 9 => !OOM...; \
             ACQ l a TTL 9 => !OOM..."
        ));
    }

    #[test]
    fn bound_locks_of_one_connection_are_released_in_all_databases() {
        let mut stage = Stage::new(Settings::default());
        for number in 0..200 {
            let database = number % 7;
            stage.check(&filled(&format!(
                "b> SELECT {database}; b> ACQ k{number} b TTL 9000 BOUND GRACE 0 => ACQUIRED"
            )));
        }
        stage.check("SWAPDB 0 3; SWAPDB 3 6");
        stage.check("b!; INFO keyspace => \"# Keyspace\\r\\n\"");
    }

    #[test]
    fn bound_lock_follows_its_database() {
        talk("b> ACQ k b TTL 9000 BOUND; SWAPDB 0 1; SELECT 1; b!; PTTL k => 2000");
    }

    /// Shows L19.
    #[test]
    fn bound_lock_whose_grant_was_not_sent_is_given_to_the_next_waiter() {
        let lose = |steps: &str, expected: &str| {
            let mut stage = Stage::new(Settings::default());
            stage.check(&filled(&format!(
                "ACQ k a TTL 9000; b> ACQ k b TTL 9000 WAIT 500 BOUND; w> ACQ k w TTL 9 WAIT 900; \
                 LOCK.RELEASE k a; {steps}"
            )));
            let client = stage.client("b");
            stage.engine.reply_is_lost(client);
            stage.check(&filled(&format!("b!; {expected}")));
        };
        lose("PING", "w< => ACQUIRED");
        // Another reply was lost.
        lose("b> PING", "w< => ; PTTL k => 2000");
        lose("ACQ o a TTL 9; b> ACQ o b TTL 9 BOUND => REFUSED", "w< => ; PTTL k => 2000");
    }

    /// Shows L13, L20.
    #[test]
    fn restart_leaves_bound_locks_time_to_reconnect() {
        let mut stage = Stage::new(Settings::default());
        stage.check(&filled(
            "b> ACQ k b TTL 90000 BOUND; b> ACQ l b TTL 90000; b> ACQ m b TTL 9 BOUND",
        ));
        let time = stage.time();
        stage.engine.end_loading(time);
        stage.check(
            "PTTL k => 5000; PTTL l => 90000; PTTL m => 9; LOCK.INFO l => ...\"client\", 0...",
        );
    }

    #[test]
    fn other_recipes_and_generic_commands_respect_the_lock() {
        talk("ACQ k a TTL 9; SET k v NX => nil; SETNX k v => 0; GET k => !WRONGTYPE...");
        talk("SET k v; ACQ k a TTL 9 => !WRONGTYPE...; LOCK.RELEASE k a => !WRONGTYPE...");
        for (command, instead) in [
            ("PEXPIRE k 9", "LOCK.RENEW instead of PEXPIRE"),
            ("PERSIST k", "LOCK.RENEW instead of PERSIST"),
            ("RENAME k l", "LOCK.RELEASE and LOCK.ACQUIRE instead of RENAME"),
            ("RENAME s k", "LOCK.RELEASE and LOCK.ACQUIRE instead of RENAME"),
            ("COPY k l", "LOCK.RELEASE and LOCK.ACQUIRE instead of COPY"),
            ("COPY s k REPLACE", "LOCK.RELEASE and LOCK.ACQUIRE instead of COPY"),
            ("MOVE k 1", "LOCK.RELEASE and LOCK.ACQUIRE instead of MOVE"),
            ("DUMP k", "LOCK.INFO instead of DUMP"),
        ] {
            talk(&format!(
                "SET s v; ACQ k a TTL 9; {command} => !ERR the key holds a lock: use {instead}; \
                 PTTL k => 9"
            ));
        }
        for command in [
            "SET k v",
            "SET k v XX",
            "SET k v KEEPTTL",
            "SET k v GET",
            "SET k v XX GET",
            "GETSET k v",
            "SETEX k 9 v",
            "PSETEX k 9 v",
            "MSET x 1 k v",
            "BITOP OR k s",
            "BITOP OR k none",
            "SUNIONSTORE k set",
            "SINTERSTORE k none",
            "SDIFFSTORE k set",
            "ZUNIONSTORE k 1 set",
            "ZINTERSTORE k 1 none",
            "ZDIFFSTORE k 1 set",
            "ZRANGESTORE k zset 0 -1",
            "SORT set ALPHA STORE k",
            "SORT none STORE k",
            "RESTORE k 0 payload REPLACE",
        ] {
            let (name, _) = command.split_once(' ').expect("a name");
            talk(&format!(
                "SET s v; SADD set m; ZADD zset 1 m; ACQ k a TTL 9; b> ACQ k b TTL 9 WAIT 9; \
                 {command} => !ERR the key holds a lock: use LOCK.RELEASE and LOCK.ACQUIRE instead \
                 of {name}; PTTL k => 9; EXISTS x => 0; \
                 LOCK.INFO k => ...\"queue\", [[\"owner\", ..."
            ));
        }
        talk(
            "ACQ k a TTL 9; SET s v; RENAMENX s k => 0; COPY s k => 0; \
             SCAN 0 TYPE lock => [\"0\", [\"k\"]]",
        );
        talk("ACQ k a TTL 9; WATCH k; LOCK.RENEW k a TTL 8; MULTI; PING; EXEC => nil-array");
    }

    #[test]
    fn owners_and_queue_are_shown() {
        talk(
            "ACQ k a TTL 90 META host-1; b> ACQ k b TTL 9 WAIT 50 SHARED; +1ms; LOCK.INFO k => \
             [\"mode\", \"exclusive\", \"permits\", 0, \"ttl\", 89, \"holders\", \
             [[\"owner\", \"a\", \"token\", ..., \"ttl\", 89, \"count\", 1, \"permits\", 0, \
             \"held\", 1, \"client\", 1, \
             \"grace\", nil, \"meta\", \"host-1\"]], \"queue\", [[\"owner\", \"b\", \"client\", 2, \
             \"mode\", \"shared\", \"wait\", 49]]]",
        );
        talk(
            "ACQ k a TTL 9; ACQ l b TTL 9; SET s v; \
             LOCK.LIST OWNER b => [\"0\", [[\"key\", \"l\", ...; \
             LOCK.LIST MATCH k => [\"0\", [[\"key\", \"k\", ...]]; \
             LOCK.LIST FROM 1 => !ERR syntax error",
        );
    }

    #[test]
    fn list_shows_keys_of_the_selectors_that_permit_it() {
        let locks = "ACQ a a TTL 9; ACQ b b TTL 9; ACQ c c TTL 9; ";
        let shown = |rules: &str, expected: [bool; 3]| {
            let seen = ["a", "b", "c"].iter().zip(expected).map(|(key, is_shown)| {
                let list =
                    if is_shown { format!("[[\"key\", \"{key}\", ...") } else { "[]]".into() };
                format!("; u> LOCK.LIST MATCH {key} => [\"0\", {list}")
            });
            let seen: String = seen.collect();
            check(&filled(&format!(
                "{locks}ACL SETUSER u on nopass {rules} => OK; u> AUTH u any => OK{seen}"
            )));
        };
        shown("~a +lock.list (~b +get)", [true, false, false]);
        shown("~a +get (%R~b +lock.list) (~c +lock.info)", [false, true, false]);
        shown("~a +lock.list (%R~b +lock.list) (%W~c +lock.list)", [true, true, false]);
        shown("+lock.list (~* +get)", [false, false, false]);
    }

    #[test]
    fn wrong_arguments_change_nothing() {
        for (arguments, error) in [
            ("k a PX 9", "ERR syntax error"),
            ("k a TTL 0", "ERR invalid expire time in 'lock.acquire' command"),
            ("k a TTL x", "ERR value is not an integer or out of range"),
            ("k a TTL 9223372036854775807", "ERR invalid expire time in 'lock.acquire' command"),
            ("k a TTL 9 WAIT -1", "ERR WAIT must not be negative"),
            ("k a TTL 9 BOUND GRACE -1", "ERR GRACE must not be negative"),
            ("k a TTL 9 GRACE 1", "ERR syntax error"),
            ("k a TTL 9 SHARED SHARED", "ERR syntax error"),
            ("k a TTL 9 SHARED PERMITS 1 OF 1", "ERR syntax error"),
            ("k a TTL 9 PERMITS 2 OF 1", "ERR PERMITS must be from 1 to the number after OF"),
            ("k a TTL 9 PERMITS 0 OF 1", "ERR PERMITS must be from 1 to the number after OF"),
            ("k a TTL 9 META", "ERR syntax error"),
            ("k a TTL 9 WAIT 0 WAIT 0", "ERR syntax error"),
            ("k a TTL 9 BOUND META m BOUND", "ERR syntax error"),
            ("k a TTL 9 BOUND GRACE 1 BOUND GRACE 1", "ERR syntax error"),
            ("k a TTL 9 META m META n", "ERR syntax error"),
            ("k \"\" TTL 9", "ERR the owner must have 1 to 1024 bytes"),
        ] {
            check(&format!("LOCK.ACQUIRE {arguments} => !{error}; EXISTS k => 0"));
        }
        check(
            "LOCK.RENEW k a PX 9 => !ERR syntax error; \
             LOCK.RENEW k a TTL 9 ALL => !ERR syntax error; \
             LOCK.RENEW k a TTL 9 TOKEN 1 TOKEN 1 => !ERR syntax error; \
             LOCK.RELEASE k a ALL ALL => !ERR syntax error",
        );
        check("LOCK.RELEASE k a TOKEN -1 => !ERR a token is not negative");
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("LOCK.ACQUIRE k a TTL 9", "new k, lock.acquire k"),
            ("LOCK.ACQUIRE k b TTL 9", ""),
            ("LOCK.ACQUIRE k a TTL 9", "lock.acquire k"),
            ("LOCK.RENEW k a TTL 9", "lock.renew k"),
            ("LOCK.RELEASE k a", "lock.release k"),
            ("LOCK.RELEASE k a", "lock.release k, del k"),
            ("LOCK.ACQUIRE k a TTL 9", "new k, lock.acquire k"),
            ("LOCK.FORCE k", "lock.force k, del k"),
        ]);
    }

    #[test]
    fn step_back_of_the_clock_moves_all_holds() {
        let mut stage = Stage::new(Settings::default());
        stage.check(&filled("ACQ k a TTL 10 SHARED; ACQ k b TTL 20 SHARED"));
        let time = stage.time();
        stage.engine.postpone(Millis(5), time);
        stage.check("+14ms; LOCK.RENEW k a TTL 1 => 1; PTTL k => 11");
    }
}

//! The queues of the clients that wait for keys: one for each key that has any.
//!
//! A wait keeps the arguments of its command once, and has a node in the queue of each of its keys.
//! A node tells where the key is among the arguments, so that a queue needs no copy of its key. A
//! client joins and leaves a queue in constant time. With names of 14 bytes, each of a million
//! clients that wait for one native lock takes 118 bytes with its timer, and 150 if each waits for
//! a lock of its own (bench `waiters`).
//!
//! Invariants: a queue is removed with its last node. The node at a [`Cursor`] exists: a cursor is
//! passed to [`Queues::leave`], which moves it on.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::waiters::WaitKind;
use crate::store::dict::HashSeed;
use crate::store::index::Index;
use crate::store::packed::{self, Items, Part};
use crate::store::slab::PodSlab;
use crate::store::string_slabs::{StringHandle, StringSlabs};
use crate::store::value::Kind;
use crate::timing::wheel::NIL;

/// The queues of waiting clients, by key.
#[derive(Debug)]
pub(super) struct Queues {
    seed: HashSeed,
    /// For each wait the place of its client in the table of clients, and its packed arguments.
    commands: StringSlabs,
    nodes: PodSlab<Node>,
    queues: PodSlab<Queue>,
    /// The queues by database and key.
    index: Index,
    /// How many clients wait for native locks.
    for_locks: usize,
}

/// A client in the queue of one key.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Node {
    command: u32,
    command_length: u16,
    /// The kind of value that the client waits for, as a number.
    kind: u8,
    /// See `WAKE_IF_GONE` and `FOR_LOCK`.
    flags: u8,
    queue: u32,
    prev: u32,
    next: u32,
    /// The position of the key's length in the bytes of the command.
    key_at: u32,
}

/// The flag of a client that is also served when the key is removed.
const WAKE_IF_GONE: u8 = 1;
/// The flag of a client that waits for a native lock: it is served strictly in its order.
const FOR_LOCK: u8 = 2;

/// The clients that wait for one key.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Queue {
    first: u32,
    last: u32,
    len: u32,
    /// How many clients are also served when the key is removed.
    wake_if_gone: u32,
    /// How many clients wait for a native lock.
    for_lock: u32,
    database: u16,
    is_marked: u16,
}

/// A place in a queue: the next client that is looked at, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor(u32);

impl Cursor {
    /// Behind the last client.
    pub(super) const END: Cursor = Cursor(NIL);
}

/// A client's wait for keys of one database.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) database: usize,
    pub(super) kind: WaitKind,
    command: StringHandle,
    nodes: Nodes,
}

/// The nodes of a wait.
#[derive(Debug)]
enum Nodes {
    One(u32),
    Several(Box<[u32]>),
}

impl Wait {
    fn nodes(&self) -> &[u32] {
        match &self.nodes {
            Nodes::One(node) => std::slice::from_ref(node),
            Nodes::Several(nodes) => nodes,
        }
    }

    /// The memory of the wait, with its queues.
    pub(super) fn bytes(&self, queues: &Queues) -> usize {
        let each = size_of::<Node>() + size_of::<Queue>() + size_of::<u32>();
        queues.commands.get(self.command).len() + self.nodes().len() * each
    }
}

impl Queues {
    pub(super) fn new(seed: HashSeed) -> Queues {
        Queues {
            seed,
            commands: StringSlabs::default(),
            nodes: PodSlab::default(),
            queues: PodSlab::default(),
            index: Index::default(),
            for_locks: 0,
        }
    }

    /// Whether no client waits for a key.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.chunks().is_empty()
    }

    /// The number of keys with waiting clients.
    pub(super) fn len(&self) -> usize {
        self.queues.chunks().len()
    }

    /// The number of keys with a client that is also served when the key is removed.
    pub(super) fn count_with_wake_if_gone(&self) -> usize {
        let numbers = self.queues.chunks().numbers();
        numbers.filter(|&queue| self.queues.get(queue).wake_if_gone > 0).count()
    }

    /// The queue of a key, if any client waits for it.
    #[inline]
    fn find(&self, database: usize, key: &[u8]) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        self.index.find(hash(self.seed, database, key), |number| {
            let queue = self.queues.get(number);
            usize::from(queue.database) == database && self.key(queue) == key
        })
    }

    fn key(&self, queue: &Queue) -> &[u8] {
        key_of(&self.commands, self.nodes.get(queue.first))
    }

    /// The number of clients that wait for native locks.
    pub(super) fn len_for_locks(&self) -> usize {
        self.for_locks
    }

    // --- joining and leaving ---

    /// Appends a client, given by its place in the table of clients, to the queues of some keys,
    /// which are among the arguments of its command.
    pub(super) fn join(
        &mut self,
        client: u32,
        database: usize,
        kind: WaitKind,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Wait {
        let mut bytes = client.to_le_bytes().to_vec();
        let mut places = Vec::with_capacity(arguments.len());
        for argument in arguments {
            places.push(bytes.len());
            bytes.extend_from_slice(&packed::concat(&[Part::Item(argument)]));
        }
        let command = self.commands.add([Part::Bytes(&bytes)]);
        let mut nodes = Vec::with_capacity(keys.len());
        let mut from = 0;
        for key in keys {
            // Keys are in the order of the arguments.
            let mut positions = (from..arguments.len()).chain(0..from);
            let Some(at) = positions.find(|&at| arguments[at] == *key) else { continue };
            let Ok(key_at) = u32::try_from(places[at]) else { continue };
            from = at + 1;
            nodes.extend(self.append(database, kind, key, command, key_at));
        }
        let nodes = match nodes[..] {
            [node] => Nodes::One(node),
            _ => Nodes::Several(nodes.into()),
        };
        self.for_locks += usize::from(kind == WaitKind::Lock);
        Wait { database, kind, command, nodes }
    }

    /// Appends a node to the queue of a key, unless its command named this key before.
    fn append(
        &mut self,
        database: usize,
        kind: WaitKind,
        key: &[u8],
        command: StringHandle,
        key_at: u32,
    ) -> Option<u32> {
        let found = self.find(database, key);
        let number = found.unwrap_or_else(|| self.queues.insert(Queue::of(database)));
        let queue = self.queues.get_mut(number);
        let prev = queue.last;
        if prev != NIL && self.nodes.get(prev).command() == command {
            return None;
        }
        let is_for_lock = kind == WaitKind::Lock;
        let flags =
            u8::from(kind.wakes_if_gone()) * WAKE_IF_GONE + u8::from(is_for_lock) * FOR_LOCK;
        let node = self.nodes.insert(Node {
            command: command.number,
            command_length: command.length,
            kind: kind.value() as u8,
            flags,
            queue: number,
            prev,
            next: NIL,
            key_at,
        });
        queue.count(flags, 1);
        queue.last = node;
        if prev == NIL {
            queue.first = node;
            let Queues { seed, commands, nodes, queues, index, .. } = self;
            let hash_of = |queue| hash_of(*seed, commands, nodes, queues.get(queue));
            index.insert(hash_of(number), number, |_| {}, hash_of);
        } else {
            self.nodes.get_mut(prev).next = node;
        }
        Some(node)
    }

    /// Removes a wait from its queues. A cursor at one of its nodes is moved on.
    pub(super) fn leave(&mut self, wait: &Wait, cursor: &mut Cursor) {
        for &node in wait.nodes() {
            let next = self.nodes.get(node).next;
            if *cursor == Cursor(node) {
                *cursor = Cursor(next);
            }
            self.remove(node);
        }
        self.commands.remove(wait.command);
        self.for_locks -= usize::from(wait.kind == WaitKind::Lock);
    }

    fn remove(&mut self, number: u32) {
        let &Node { queue: queue_number, prev, next, flags, .. } = self.nodes.get(number);
        if (prev, next) == (NIL, NIL) {
            let Queues { seed, commands, nodes, queues, index, .. } = self;
            let hash_of = |queue| hash_of(*seed, commands, nodes, queues.get(queue));
            index.remove(hash_of(queue_number), queue_number, |_| {}, hash_of);
            queues.release(queue_number);
        } else {
            let queue = self.queues.get_mut(queue_number);
            queue.count(flags, -1);
            match prev {
                NIL => queue.first = next,
                _ => self.nodes.get_mut(prev).next = next,
            }
            match next {
                NIL => queue.last = prev,
                _ => self.nodes.get_mut(next).prev = prev,
            }
        }
        self.nodes.release(number);
    }

    // --- looking ---

    /// The arguments of the command of a wait.
    pub(super) fn arguments(&self, wait: &Wait) -> Items<'_> {
        split(self.commands.get(wait.command)).1
    }

    /// The arguments of the command of the next client.
    pub(super) fn next_arguments(&self, Cursor(next): Cursor) -> Option<Items<'_>> {
        (next != NIL).then(|| split(self.commands.get(self.nodes.get(next).command())).1)
    }

    fn client(&self, node: &Node) -> u32 {
        split(self.commands.get(node.command())).0
    }

    /// The clients that wait for a key, in their order, by their places in the table of clients.
    pub(super) fn of_key(&self, database: usize, key: &[u8]) -> impl Iterator<Item = u32> {
        let first = self.find(database, key).map_or(NIL, |queue| self.queues.get(queue).first);
        let node = |number| (number != NIL).then(|| self.nodes.get(number));
        std::iter::successors(node(first), move |before| node(before.next))
            .map(|node| self.client(node))
    }

    /// The number of clients that wait for the native lock at this key.
    pub(super) fn count_for_lock(&self, database: usize, key: &[u8]) -> usize {
        self.find(database, key).map_or(0, |queue| self.queues.get(queue).for_lock as usize)
    }

    /// The keys of a database that clients wait for.
    pub(super) fn keys(&self, database: usize) -> Vec<Box<[u8]>> {
        let queues = self.queues.chunks().numbers().map(|number| self.queues.get(number));
        let of_database = queues.filter(|queue| usize::from(queue.database) == database);
        of_database.map(|queue| self.key(queue).into()).collect()
    }

    /// The keys of a wait.
    pub(super) fn keys_of(&self, wait: &Wait) -> Vec<Box<[u8]>> {
        let key = |&node: &u32| key_of(&self.commands, self.nodes.get(node)).into();
        wait.nodes().iter().map(key).collect()
    }

    // --- serving ---

    /// Marks the queue of a key that now holds a value of this type, or none, if that meets a
    /// client's condition. Returns whether it is newly marked.
    pub(super) fn mark(&mut self, database: usize, key: &[u8], kind: Option<Kind>) -> bool {
        let Some(number) = self.find(database, key) else { return false };
        let queue = self.queues.get(number);
        if queue.is_marked == 1 || self.first_ready(queue, queue.first, kind, false).is_none() {
            return false;
        }
        self.queues.get_mut(number).is_marked = 1;
        true
    }

    /// Removes the mark of a queue. Returns its begin.
    pub(super) fn unmark(&mut self, database: usize, key: &[u8]) -> Cursor {
        let Some(number) = self.find(database, key) else { return Cursor::END };
        let queue = self.queues.get_mut(number);
        queue.is_marked = 0;
        Cursor(queue.first)
    }

    /// The next client, by its place in the table of clients, with a condition that is met by a
    /// value of this type, or by none; if `is_order_kept`, of those that are not served in their
    /// order. The cursor is moved behind it.
    pub(super) fn next_ready(
        &self,
        cursor: &mut Cursor,
        kind: Option<Kind>,
        is_order_kept: bool,
    ) -> Option<u32> {
        let Cursor(from) = *cursor;
        let queue = self.queues.get((from != NIL).then(|| self.nodes.get(from).queue)?);
        let found = self.first_ready(queue, from, kind, is_order_kept);
        *cursor = Cursor(found.map_or(NIL, |node| node.next));
        found.map(|node| self.client(node))
    }

    fn first_ready(
        &self,
        queue: &Queue,
        from: u32,
        kind: Option<Kind>,
        is_order_kept: bool,
    ) -> Option<&Node> {
        if kind.is_none() && queue.wake_if_gone == 0 || is_order_kept && queue.for_lock == queue.len
        {
            return None;
        }
        let kind = kind.map(|kind| kind as u8);
        let is_ready = |node: &&Node| {
            (node.flags & WAKE_IF_GONE > 0 || kind == Some(node.kind))
                && !(is_order_kept && node.flags & FOR_LOCK > 0)
        };
        let node = |number| (number != NIL).then(|| self.nodes.get(number));
        std::iter::successors(node(from), |before| node(before.next)).find(is_ready)
    }
}

impl Node {
    fn command(&self) -> StringHandle {
        StringHandle { number: self.command, length: self.command_length }
    }
}

impl Queue {
    /// A queue that has no node yet.
    fn of(database: usize) -> Queue {
        let database = u16::try_from(database).unwrap_or(u16::MAX);
        Queue {
            first: NIL,
            last: NIL,
            len: 0,
            wake_if_gone: 0,
            for_lock: 0,
            database,
            is_marked: 0,
        }
    }

    /// Counts a client with these flags that comes (1) or goes (-1).
    fn count(&mut self, flags: u8, by: i32) {
        self.len = self.len.wrapping_add_signed(by);
        if flags & WAKE_IF_GONE > 0 {
            self.wake_if_gone = self.wake_if_gone.wrapping_add_signed(by);
        }
        if flags & FOR_LOCK > 0 {
            self.for_lock = self.for_lock.wrapping_add_signed(by);
        }
    }
}

const _: () = assert!(size_of::<Node>() == 24 && size_of::<Queue>() == 24);

/// The place of the client in the table of clients, and the arguments of its command.
fn split(bytes: &[u8]) -> (u32, Items<'_>) {
    match bytes.split_first_chunk() {
        Some((client, arguments)) => (u32::from_le_bytes(*client), Items(arguments)),
        None => unreachable!("the place of a client comes first"),
    }
}

/// The key that a node waits for.
fn key_of<'s>(commands: &'s StringSlabs, node: &Node) -> &'s [u8] {
    let bytes = commands.get(node.command());
    &bytes[packed::item_at(bytes, node.key_at as usize)]
}

fn hash_of(seed: HashSeed, commands: &StringSlabs, nodes: &PodSlab<Node>, queue: &Queue) -> u64 {
    hash(seed, queue.database.into(), key_of(commands, nodes.get(queue.first)))
}

fn hash(seed: HashSeed, database: usize, key: &[u8]) -> u64 {
    // An odd number, so that databases differ in the bits that an index uses.
    seed.hash(key) ^ (database as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

//! The tables of KEYS and ARGV. A script that takes them as parameters has tables of its own, which
//! still hold the values of its last run; most arguments of a lock script are the same every time.
//!
//! Invariant: a script finds in them exactly the values it is given, whatever the last run did.

use std::cell::Cell;
use std::ffi::c_int;

use mlua::ffi::{self, lua_State};

use super::bridge;
use super::values::{push_bytes, set_field};

/// Length of the longest table that is used again. Clearing a longer one would cost more than a new
/// one.
const REUSED_LENGTH_MAX: usize = 32;
/// Length of the longest string that is remembered: a lock's owner, which is a UUID and a thread,
/// is shorter.
const REMEMBERED_BYTES_MAX: usize = 48;

/// The parameters of a script.
pub(super) struct ScriptParameters {
    /// The anchor of the table `redis`, or of `redis.call` alone.
    pub(super) redis: c_int,
    /// Whether it ends before the host would be polled.
    pub(super) ends_soon: bool,
    pub(super) tables: Tables,
}

/// The tables of KEYS and ARGV.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) keys: ReusedTable,
    pub(super) args: ReusedTable,
}

impl Tables {
    pub(super) fn named(&self) -> [(&ReusedTable, &'static str); 2] {
        [(&self.keys, "KEYS"), (&self.args, "ARGV")]
    }

    /// Compares the values in the tables with the next ones. Until [`Tables::remember`] is called,
    /// the values in the tables are unknown. Never raises.
    pub(super) fn compare(&mut self, keys: &[&[u8]], args: &[&[u8]]) -> [Matches; 2] {
        [self.keys.compare(keys), self.args.compare(args)]
    }

    /// Marks the values of this run as those in the tables: the script has not changed them. Never
    /// raises.
    pub(super) fn remember(&mut self, keys: &[&[u8]], args: &[&[u8]]) {
        self.keys.is_known = keys.len() <= REUSED_LENGTH_MAX;
        self.args.is_known = args.len() <= REUSED_LENGTH_MAX;
    }
}

/// A table that is used for every run.
pub(super) struct ReusedTable {
    anchor: Cell<c_int>,
    /// Whether it holds exactly the remembered values.
    is_known: bool,
    remembered: Vec<ShortString>,
}

impl Default for ReusedTable {
    fn default() -> ReusedTable {
        ReusedTable { anchor: Cell::new(ffi::LUA_NOREF), is_known: false, remembered: Vec::new() }
    }
}

impl ReusedTable {
    pub(super) fn anchor(&self) -> c_int {
        self.anchor.get()
    }

    fn compare(&mut self, items: &[&[u8]]) -> Matches {
        let count = std::mem::take(&mut self.is_known).then_some(self.remembered.len());
        if items.len() > REUSED_LENGTH_MAX {
            self.remembered.clear();
            return Matches::default();
        }
        if self.remembered.len() != items.len() {
            self.remembered.resize(items.len(), ShortString::default());
        }
        let (mut same, mut bit) = (0, 1);
        for (text, item) in self.remembered.iter_mut().zip(items) {
            if text.is(item) {
                same |= bit;
            } else {
                text.set(item);
            }
            bit <<= 1;
        }
        Matches { count, same: if count.is_some() { same } else { 0 } }
    }
}

/// Which of the next values a table already holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Matches {
    /// The number of items, if it is known that there is nothing else.
    count: Option<usize>,
    /// A bit for each item that already has the right value.
    same: u64,
}

impl Matches {
    fn is_all(&self, items: &[&[u8]]) -> bool {
        self.count == Some(items.len()) && self.same == (1 << items.len()) - 1
    }
}

/// A short string.
#[derive(Clone, Copy)]
struct ShortString {
    /// If the string is too long, a length that no short string has.
    len: usize,
    bytes: [u8; REMEMBERED_BYTES_MAX],
}

impl Default for ShortString {
    fn default() -> ShortString {
        ShortString { len: usize::MAX, bytes: [0; REMEMBERED_BYTES_MAX] }
    }
}

impl ShortString {
    #[inline(always)]
    fn is(&self, item: &[u8]) -> bool {
        self.len == item.len() && self.bytes.get(..item.len()) == Some(item)
    }

    fn set(&mut self, item: &[u8]) {
        self.len = usize::MAX;
        if let Some(bytes) = self.bytes.get_mut(..item.len()) {
            bytes.copy_from_slice(item);
            self.len = item.len();
        }
    }
}

/// Makes tables that are used for every run. May raise.
pub(super) unsafe fn make_tables(lua: *mut lua_State, tables: &Tables) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        for (table, _) in tables.named() {
            ffi::lua_createtable(lua, (REUSED_LENGTH_MAX / 4) as c_int, 0);
            table.anchor.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
        }
    }
}

/// Fills the tables that scripts read as globals with `keys` and `args`. May raise.
pub(super) unsafe fn fill_globals(lua: *mut lua_State, keys: &[&[u8]], args: &[&[u8]]) {
    // SAFETY: may raise, owns nothing; uses at most five slots.
    unsafe {
        let bridge = bridge(lua);
        for ((table, name), items) in bridge.tables.named().into_iter().zip([keys, args]) {
            if push_filled(lua, table, items, Matches::default()) {
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, bridge.base.get());
                ffi::lua_pushvalue(lua, -2);
                set_field(lua, -2, name);
                ffi::lua_settop(lua, -2);
            }
            ffi::lua_settop(lua, -2);
        }
    }
}

/// Pushes a table with exactly `items`, some of which it already holds. If its values are unknown,
/// a script may have done anything to it: if more than numbered items are left in it, it is
/// replaced by a new one. Returns whether it is a new one. May raise.
pub(super) unsafe fn push_filled(
    lua: *mut lua_State,
    table: &ReusedTable,
    items: &[&[u8]],
    held: Matches,
) -> bool {
    // SAFETY: may raise, owns nothing; uses at most four slots.
    unsafe {
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, table.anchor.get());
        if held.is_all(items) {
            return false;
        }
        let is_new = match held.count {
            Some(count) => {
                for at in items.len()..count {
                    ffi::lua_pushnil(lua);
                    ffi::lua_rawseti_(lua, -2, (at + 1) as c_int);
                }
                false
            }
            None => !clear(lua, items.len()),
        };
        if is_new {
            ffi::lua_settop(lua, -2);
            let room = items.len().max(REUSED_LENGTH_MAX / 4);
            ffi::lua_createtable(lua, room as c_int, 0);
            ffi::lua_pushvalue(lua, -1);
            ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, table.anchor.get());
        }
        set_items(lua, items, held.same);
        is_new
    }
}

/// Pushes a table of items. May raise.
pub(super) unsafe fn push_list(lua: *mut lua_State, items: &[&[u8]]) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        ffi::lua_createtable(lua, c_int::try_from(items.len()).unwrap_or(c_int::MAX), 0);
        set_items(lua, items, 0);
    }
}

/// Sets those items of the table on top that it does not hold yet. May raise.
unsafe fn set_items(lua: *mut lua_State, items: &[&[u8]], mut same: u64) {
    // SAFETY: may raise, owns nothing; the table is on top.
    unsafe {
        for (i, item) in items.iter().enumerate() {
            if same & 1 == 0 {
                push_bytes(lua, item);
                ffi::lua_rawseti_(lua, -2, (i + 1) as c_int);
            }
            same >>= 1;
        }
    }
}

/// Empties tables that are used for every run. May raise.
pub(super) unsafe fn empty_tables(lua: *mut lua_State, tables: &mut Tables) {
    // SAFETY: may raise, owns nothing.
    unsafe {
        for table in [&mut tables.keys, &mut tables.args] {
            push_filled(lua, table, &[], Matches::default());
            ffi::lua_settop(lua, -2);
            table.remembered.clear();
            table.is_known = true;
        }
    }
}

/// Removes the items beyond `len` from the table on top. Returns whether it can be used again. May
/// raise.
unsafe fn clear(lua: *mut lua_State, len: usize) -> bool {
    // SAFETY: may raise, owns nothing; assigning nil to a key during `lua_next` is allowed.
    unsafe {
        if len > REUSED_LENGTH_MAX || ffi::lua_getmetatable(lua, -1) != 0 {
            ffi::lua_settop(lua, if len > REUSED_LENGTH_MAX { -1 } else { -2 });
            return false;
        }
        let mut count = 0;
        ffi::lua_pushnil(lua);
        while ffi::lua_next(lua, -2) != 0 {
            ffi::lua_settop(lua, -2);
            count += 1;
            if count > REUSED_LENGTH_MAX || ffi::lua_type(lua, -1) != ffi::LUA_TNUMBER {
                ffi::lua_settop(lua, -2);
                return false;
            }
            let key = ffi::lua_tonumber(lua, -1);
            if key < 1.0 || key > len as f64 || key.fract() != 0.0 {
                ffi::lua_pushvalue(lua, -1);
                ffi::lua_pushnil(lua);
                ffi::lua_rawset(lua, -4);
            }
        }
        true
    }
}

//! The tables of KEYS and ARGV. A harmless script has its own: it finds in them what it was given
//! the last time, and of a lock script's arguments most are the same every time.
//!
//! What must hold: a script finds in them exactly what it is given, whatever the last one did.

use std::cell::Cell;
use std::ffi::{CStr, c_int};

use mlua::ffi::{self, lua_State};

use super::harmless::GLOBALS;
use super::values::{push_bytes, set_field};
use super::{Chunk, Context, context};

/// Longer tables are built afresh: clearing them would cost more.
const REUSED_LENGTH_MAX: usize = 32;
/// Longer texts are not remembered. A lock's owner is a UUID and a thread.
const REMEMBERED_BYTES_MAX: usize = 48;

/// The tables that a script finds under these names.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) keys: Reused,
    pub(super) args: Reused,
}

impl Tables {
    /// What the tables hold of what they are to hold next. Until [`Tables::have_kept`] nothing is
    /// known of them. Quiet.
    pub(super) fn compare(&mut self, keys: &[&[u8]], args: &[&[u8]]) -> [Held; 2] {
        [self.keys.compare(keys), self.args.compare(args)]
    }

    /// The script has left in them what it was given. Quiet.
    pub(super) fn have_kept(&mut self, keys: &[&[u8]], args: &[&[u8]]) {
        self.keys.is_known = keys.len() <= REUSED_LENGTH_MAX;
        self.args.is_known = args.len() <= REUSED_LENGTH_MAX;
    }
}

/// A table that is used again and again.
pub(super) struct Reused {
    anchor: Cell<c_int>,
    /// Whether it holds what is remembered, and nothing else.
    is_known: bool,
    remembered: Vec<Text>,
}

impl Default for Reused {
    fn default() -> Reused {
        Reused { anchor: Cell::new(ffi::LUA_NOREF), is_known: false, remembered: Vec::new() }
    }
}

impl Reused {
    pub(super) fn anchor(&self) -> c_int {
        self.anchor.get()
    }

    fn compare(&mut self, items: &[&[u8]]) -> Held {
        let count = std::mem::take(&mut self.is_known).then_some(self.remembered.len());
        if items.len() > REUSED_LENGTH_MAX {
            self.remembered.clear();
            return Held::default();
        }
        if self.remembered.len() != items.len() {
            self.remembered.resize(items.len(), Text::default());
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
        Held { count, same: if count.is_some() { same } else { 0 } }
    }
}

/// What a table holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    /// How many items and nothing else, if that is known.
    count: Option<usize>,
    /// A bit for each item that is what it has to be.
    same: u64,
}

/// A short text.
#[derive(Clone, Copy)]
struct Text {
    /// If it is too long, that of no text.
    len: usize,
    bytes: [u8; REMEMBERED_BYTES_MAX],
}

impl Default for Text {
    fn default() -> Text {
        Text { len: usize::MAX, bytes: [0; REMEMBERED_BYTES_MAX] }
    }
}

impl Text {
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

/// Where a script finds its tables.
#[derive(Clone, Copy)]
pub(super) enum Base {
    /// Among the globals of all that are not harmless.
    Common,
    /// Among those of this one.
    Of(Chunk),
}

/// Gives the harmless function on top globals of its own: the common ones, and its tables. Plain.
pub(super) unsafe fn give_own_tables(lua: *mut lua_State, context: &Context, own: &Tables) {
    // SAFETY: plain; uses five slots.
    unsafe {
        ffi::lua_createtable(lua, 0, GLOBALS.len() as c_int + 1);
        let globals = ffi::lua_gettop(lua);
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, context.plain_base.get());
        ffi::lua_pushnil(lua);
        while ffi::lua_next(lua, globals + 1) != 0 {
            ffi::lua_pushvalue(lua, -2);
            ffi::lua_insert(lua, -2);
            ffi::lua_rawset(lua, globals);
        }
        ffi::lua_settop(lua, globals);
        add_tables(lua, globals, own);
        ffi::lua_setfenv(lua, -2);
    }
}

/// Adds tables to the globals at `base`. Plain.
pub(super) unsafe fn add_tables(lua: *mut lua_State, base: c_int, tables: &Tables) {
    // SAFETY: plain.
    unsafe {
        for (table, name) in [(&tables.keys, "KEYS"), (&tables.args, "ARGV")] {
            ffi::lua_createtable(lua, (REUSED_LENGTH_MAX / 4) as c_int, 0);
            ffi::lua_pushvalue(lua, -1);
            table.anchor.set(ffi::luaL_ref(lua, ffi::LUA_REGISTRYINDEX));
            set_field(lua, base, name);
        }
    }
}

/// Makes a table hold exactly `items`, of which it holds some. If nothing is known of it, a script
/// may have done anything to it: if not only numbered items are left in it, a new one takes its
/// place. Plain.
pub(super) unsafe fn fill(
    lua: *mut lua_State,
    base: Base,
    table: &Reused,
    name: &CStr,
    items: &[&[u8]],
    held: Held,
) {
    // SAFETY: plain; uses at most five slots.
    unsafe {
        if held.count == Some(items.len()) && held.same == (1 << items.len()) - 1 {
            return;
        }
        ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, table.anchor.get());
        match held.count {
            Some(count) => {
                for at in items.len()..count {
                    ffi::lua_pushnil(lua);
                    ffi::lua_rawseti_(lua, -2, (at + 1) as c_int);
                }
            }
            None => {
                if !clear(lua, items.len()) {
                    replace(lua, base, table, name, items.len());
                }
            }
        }
        set_items(lua, items, held.same);
        ffi::lua_settop(lua, -2);
    }
}

/// Puts a new table in the place of the one on top. Plain.
unsafe fn replace(lua: *mut lua_State, base: Base, table: &Reused, name: &CStr, items: usize) {
    // SAFETY: plain; uses three more slots than it finds.
    unsafe {
        ffi::lua_settop(lua, -2);
        ffi::lua_createtable(lua, items.max(REUSED_LENGTH_MAX / 4) as c_int, 0);
        ffi::lua_pushvalue(lua, -1);
        ffi::lua_rawseti_(lua, ffi::LUA_REGISTRYINDEX, table.anchor.get());
        match base {
            Base::Common => {
                let base = context(lua).base.get();
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, base);
            }
            Base::Of(chunk) => {
                ffi::lua_rawgeti_(lua, ffi::LUA_REGISTRYINDEX, chunk.anchor);
                ffi::lua_getfenv(lua, -1);
                ffi::lua_replace(lua, -2);
            }
        }
        ffi::lua_pushvalue(lua, -2);
        ffi::lua_setfield(lua, -2, name.as_ptr());
        ffi::lua_settop(lua, -2);
    }
}

/// Pushes a table of items. Plain.
pub(super) unsafe fn push_list(lua: *mut lua_State, items: &[&[u8]]) {
    // SAFETY: plain.
    unsafe {
        ffi::lua_createtable(lua, c_int::try_from(items.len()).unwrap_or(c_int::MAX), 0);
        set_items(lua, items, 0);
    }
}

/// Sets the items of the table on top, but for those that it holds. Plain.
unsafe fn set_items(lua: *mut lua_State, items: &[&[u8]], mut same: u64) {
    // SAFETY: plain; the table is on top.
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

/// Removes what is beyond `len` from the table on top; whether it can be used again. Plain.
unsafe fn clear(lua: *mut lua_State, len: usize) -> bool {
    // SAFETY: plain; assigning nil to a key during `lua_next` is allowed.
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

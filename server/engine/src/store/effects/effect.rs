//! The table of effects.
//!
//! Effects are recorded in byte form in one buffer that is reused. Conversions between the forms of
//! a value are effects of their own, so applying effects depends on no setting.

use std::borrow::Cow;

use super::codec::Field;
use super::image::Image;
use crate::store::events::Events;
use crate::store::list::End;
use crate::store::lock::{Hold, Leases};
use crate::store::serialised::Malformed;
use crate::store::set::SetForm;
use crate::store::stream::id::StreamId;
use crate::store::stream::{Keep, Trim};
use crate::store::value::Kind;
use crate::timing::time::Millis;
#[cfg(feature = "defects")]
use lockwheel_defects::Defect;

/// A key and its database. Effects on whole databases name no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The number of the database.
    pub database: usize,
    /// The key.
    pub key: &'a [u8],
}

/// Pairs of fields and values of a new stream entry.
pub type Pairs<'a> = Cow<'a, [[&'a [u8]; 2]]>;

/// Declares the effects with the tags of their byte form. A tag is never reused.
macro_rules! effects {
    ($(
        $(#[$doc:meta])*
        $tag:literal $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
        },
    )*) => {
        /// One change of the state at a [`Place`].
        #[derive(Clone, Debug)]
        pub enum Effect<'a> {
            $($(#[$doc])* $name { $($(#[$field_doc])* $field: $type,)* },)*
        }

        /// The tags with the names of their effects.
        #[cfg(any(test, feature = "defects"))]
        pub const TAGS: &[(u8, &str)] = &[$(($tag, stringify!($name)),)*];

        impl<'a> Effect<'a> {
            fn tag(&self) -> u8 {
                match self {
                    $(Effect::$name { .. } => $tag,)*
                }
            }

            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Effect::$name { $($field,)* } => {
                        $($field.encode(out);)*
                    })*
                }
            }

            fn decode(tag: u8, from: &mut &'a [u8]) -> Result<Effect<'a>, Malformed> {
                Ok(match tag {
                    $($tag => Effect::$name { $($field: <$type>::decode(from)?,)* },)*
                    _ => return Err(Malformed),
                })
            }
        }
    };
}

effects! {
    // --- keys ---
    /// The key has this value. A new key has no deadline; an existing one keeps its deadline.
    1 Set {
        /// The value.
        value: Image<'a>,
    },
    /// The key is removed.
    2 Deleted {},
    /// The key is removed since its deadline has been reached.
    3 Expired {
        /// The deadline, on the lease clock.
        deadline: Millis,
    },
    /// The key has this deadline, or none.
    4 Deadline {
        /// On the lease clock.
        deadline: Option<Millis>,
    },
    /// The key with its value and deadline is moved to another place, where no key is.
    5 Moved {
        /// The database of the other place.
        database: usize,
        /// The key of the other place.
        key: &'a [u8],
    },
    /// The value and deadline of the key are copied to another place, where no key is.
    6 Copied {
        /// The database of the other place.
        database: usize,
        /// The key of the other place.
        key: &'a [u8],
    },
    /// The key counts as changed, to `WATCH` and the like, although its value has not. Changes no
    /// state.
    7 Touched {},
    /// The place names a channel: a message was sent to its subscribers. Changes no state.
    8 Published {
        /// Whether the channel is sharded.
        is_sharded: bool,
        /// The message.
        message: &'a [u8],
    },
    /// The database is about to have this many keys; the place names no key. Changes no state.
    9 Reserved {
        /// Their number.
        keys: usize,
    },

    /// Whether the key is plain: no lock, since only plain writes have made it. Each other effect
    /// on its value clears that.
    11 Plain {
        /// Whether it is.
        is_plain: bool,
    },

    // --- strings ---
    /// Bytes are overwritten. The string is extended by zeros to the offset, and by the bytes.
    10 Patched {
        /// Where the bytes begin.
        offset: usize,
        /// The bytes; none if the string only takes the form that can be changed in place.
        bytes: &'a [u8],
    },

    // --- hashes ---
    /// A field is set.
    20 FieldSet {
        /// The field.
        field: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// A field is removed.
    21 FieldRemoved {
        /// The field.
        field: &'a [u8],
    },
    /// The hash takes the large form.
    22 HashGrown {},

    // --- lists ---
    /// An element is added at an end.
    30 Pushed {
        /// The end.
        end: End,
        /// The element.
        element: &'a [u8],
    },
    /// Elements are removed from an end.
    31 Popped {
        /// The end.
        end: End,
        /// The number of elements.
        count: usize,
    },
    /// An element is inserted.
    32 Inserted {
        /// Its position.
        place: usize,
        /// The element.
        element: &'a [u8],
    },
    /// An element is replaced.
    33 Replaced {
        /// Its position.
        place: usize,
        /// The new element.
        element: &'a [u8],
    },
    /// Only a range of elements is kept.
    34 Cut {
        /// The position of the first element that is kept.
        start: usize,
        /// The position after the last one.
        end: usize,
    },
    /// Equal elements are removed.
    35 ElementsRemoved {
        /// The element.
        element: &'a [u8],
        /// Most elements that are removed.
        count: usize,
        /// End from which they are counted.
        from: End,
    },
    /// The list becomes a quicklist, or a listpack again.
    36 ListForm {
        /// Whether it is a quicklist.
        is_outgrown: bool,
    },

    // --- sets ---
    /// A member is added.
    40 MemberAdded {
        /// The member.
        member: &'a [u8],
    },
    /// A member is removed.
    41 MemberRemoved {
        /// The member.
        member: &'a [u8],
    },
    /// The set takes another form.
    42 SetForm {
        /// The form.
        form: SetForm,
    },

    // --- sorted sets ---
    /// A member has this score.
    50 Scored {
        /// The member.
        member: &'a [u8],
        /// The score.
        score: f64,
    },
    /// A member is removed.
    51 ScoreRemoved {
        /// The member.
        member: &'a [u8],
    },
    /// The members of a range of ranks are removed.
    52 RanksRemoved {
        /// The first rank.
        start: usize,
        /// The rank after the last one.
        end: usize,
    },
    /// The sorted set takes the large form.
    53 SortedSetGrown {},

    // --- streams ---
    /// An entry is added at the end.
    60 EntryAdded {
        /// Its id.
        id: StreamId,
        /// Whether it begins a node.
        begins_node: bool,
        /// Its fields and values.
        fields: Pairs<'a>,
    },
    /// An entry is deleted.
    61 EntryDeleted {
        /// Its id.
        id: StreamId,
    },
    /// The oldest entries are removed.
    62 Trimmed {
        /// The entries to keep.
        trim: Trim,
    },
    /// The last id and the totals are set.
    63 StreamTotals {
        /// The last id that was given out.
        last_id: StreamId,
        /// The greatest id of a deleted entry.
        max_deleted_id: StreamId,
        /// The number of entries that were ever added.
        entries_added: i64,
    },

    // --- consumer groups ---
    /// A group is added.
    70 GroupAdded {
        /// Its name.
        group: &'a [u8],
        /// The id of the last entry given to a consumer.
        last_id: StreamId,
        /// The number of entries given to consumers, if known.
        entries_read: Option<i64>,
    },
    /// A group is removed.
    71 GroupRemoved {
        /// Its name.
        group: &'a [u8],
    },
    /// The position of a group is set.
    72 GroupPosition {
        /// Its name.
        group: &'a [u8],
        /// The id of the last entry given to a consumer.
        last_id: StreamId,
        /// The number of entries given to consumers, if known.
        entries_read: Option<i64>,
    },
    /// A consumer was seen; it is added if it is new.
    73 ConsumerSeen {
        /// The group.
        group: &'a [u8],
        /// The consumer.
        consumer: &'a [u8],
        /// The wall clock.
        at: Millis,
    },
    /// A consumer has received an entry.
    74 ConsumerActive {
        /// The group.
        group: &'a [u8],
        /// The consumer.
        consumer: &'a [u8],
        /// The wall clock.
        at: Millis,
    },
    /// A consumer and its pending entries are removed.
    75 ConsumerRemoved {
        /// The group.
        group: &'a [u8],
        /// The consumer.
        consumer: &'a [u8],
    },
    /// An entry is pending with this consumer and no other.
    76 Assigned {
        /// The group.
        group: &'a [u8],
        /// The entry.
        id: StreamId,
        /// The consumer.
        consumer: &'a [u8],
        /// The wall clock at the last delivery.
        delivered_at: Millis,
        /// The number of deliveries.
        deliveries: u64,
    },
    /// An entry is no longer pending.
    77 Acknowledged {
        /// The group.
        group: &'a [u8],
        /// The entry.
        id: StreamId,
    },

    // --- locks ---
    /// An owner holds the lock. Its fencing token is the last one of the server.
    110 HoldGranted {
        /// The hold.
        hold: Hold,
    },
    /// The leases of an owner have changed.
    111 HoldChanged {
        /// The owner.
        owner: &'a [u8],
        /// Its leases.
        leases: Leases,
    },
    /// An owner does not hold the lock any more.
    112 HoldEnded {
        /// The owner.
        owner: &'a [u8],
    },
    /// Fencing tokens up to this one have been given out; the place names no key.
    113 TokensIssued {
        /// The last token.
        last: u64,
    },

    // --- databases ---
    /// All keys of the database are removed.
    80 Flushed {},
    /// The database is swapped with another one.
    81 Swapped {
        /// The other database.
        with: usize,
    },
    /// The deadlines of all keys of all databases are moved.
    82 Postponed {
        /// The span by which they are later.
        span: Millis,
    },

    // --- functions ---
    /// A library is loaded; it replaces the one of its name.
    90 LibraryLoaded {
        /// Its text.
        code: &'a [u8],
    },
    /// A library is removed.
    91 LibraryDeleted {
        /// Its name.
        name: &'a [u8],
    },
    /// All libraries are removed.
    92 LibrariesFlushed {},

    // --- users of a server whose log is replicated ---
    /// From now on there are only the users that effects set, and the default user.
    120 UsersCleared {},
    /// A user is set, or replaced.
    121 UserSet {
        /// Its name.
        name: &'a [u8],
        /// The rules that make it.
        rules: &'a [u8],
    },
    /// A user is removed.
    122 UserRemoved {
        /// Its name.
        name: &'a [u8],
    },

    // --- messages ---
    /// A keyspace event. It changes no state.
    100 Event {
        /// Its class.
        kind: Events,
        /// Its name.
        name: &'a [u8],
    },
}

impl<'a> Effect<'a> {
    /// Whether the effect changes the state.
    pub fn changes_state(&self) -> bool {
        !matches!(
            self,
            Effect::Event { .. }
                | Effect::Touched {}
                | Effect::Published { .. }
                | Effect::Reserved { .. }
        )
    }

    /// Whether the effect changes what `WATCH` and client tracking observe of the key at its place:
    /// its contents or deadline. The form of a value and its consumer groups are not observed, as
    /// in Redis.
    pub fn modifies_key(&self) -> bool {
        match self {
            Effect::Patched { bytes, .. } => !bytes.is_empty(),
            Effect::Set { .. }
            | Effect::Deleted {}
            | Effect::Expired { .. }
            | Effect::Deadline { .. }
            | Effect::Moved { .. }
            | Effect::Touched {}
            | Effect::FieldSet { .. }
            | Effect::FieldRemoved { .. }
            | Effect::Pushed { .. }
            | Effect::Popped { .. }
            | Effect::Inserted { .. }
            | Effect::Replaced { .. }
            | Effect::Cut { .. }
            | Effect::ElementsRemoved { .. }
            | Effect::MemberAdded { .. }
            | Effect::MemberRemoved { .. }
            | Effect::Scored { .. }
            | Effect::ScoreRemoved { .. }
            | Effect::RanksRemoved { .. }
            | Effect::EntryAdded { .. }
            | Effect::EntryDeleted { .. }
            | Effect::Trimmed { .. }
            | Effect::HoldGranted { .. }
            | Effect::HoldChanged { .. }
            | Effect::HoldEnded { .. } => true,
            _ => false,
        }
    }

    /// The type of the value that the key has after the effect; `None` if it has none or the effect
    /// does not determine it.
    pub fn kind_after(&self) -> Option<Kind> {
        match self {
            Effect::Set { value } => value.kind(),
            Effect::Patched { .. } => Some(Kind::String),
            Effect::FieldSet { .. } | Effect::FieldRemoved { .. } => Some(Kind::Hash),
            Effect::Pushed { .. }
            | Effect::Popped { .. }
            | Effect::Inserted { .. }
            | Effect::Replaced { .. }
            | Effect::Cut { .. }
            | Effect::ElementsRemoved { .. } => Some(Kind::List),
            Effect::MemberAdded { .. } | Effect::MemberRemoved { .. } => Some(Kind::Set),
            Effect::Scored { .. } | Effect::ScoreRemoved { .. } | Effect::RanksRemoved { .. } => {
                Some(Kind::SortedSet)
            }
            Effect::EntryAdded { .. } | Effect::EntryDeleted { .. } | Effect::Trimmed { .. } => {
                Some(Kind::Stream)
            }
            Effect::HoldGranted { .. } | Effect::HoldChanged { .. } | Effect::HoldEnded { .. } => {
                Some(Kind::Lock)
            }
            _ => None,
        }
    }
}

/// The effects of a unit, in order, in byte form.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    bytes: Vec<u8>,
    /// The place of the last effect: its database, and where its key is in `bytes`.
    last: Option<(usize, usize, usize)>,
    /// Tag of the effects that are not recorded: a defect that the shadow must find.
    #[cfg(test)]
    pub(crate) left_out: Option<u8>,
}

/// Set in a tag if the place is that of the effect before.
const SAME_PLACE: u8 = 1 << 7;

/// A buffer that is larger is freed when the effects are cleared.
const KEPT_BYTES: usize = 1 << 16;

impl Effects {
    /// Whether there are no effects.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The byte form.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends an effect.
    pub(crate) fn push(&mut self, place: Place<'_>, effect: &Effect<'_>) {
        #[cfg(test)]
        if self.left_out == Some(effect.tag()) {
            return;
        }
        #[cfg(feature = "defects")]
        if TAGS.iter().any(|(tag, name)| {
            *tag == effect.tag() && lockwheel_defects::is_on(Defect::EffectLeftOut(name))
        }) {
            return;
        }
        let is_last = |&(database, start, end): &(usize, usize, usize)| {
            database == place.database && self.bytes[start..end] == *place.key
        };
        if self.last.as_ref().is_some_and(is_last) {
            self.bytes.push(effect.tag() | SAME_PLACE);
        } else {
            self.bytes.push(effect.tag());
            place.database.encode(&mut self.bytes);
            place.key.encode(&mut self.bytes);
            let end = self.bytes.len();
            self.last = Some((place.database, end - place.key.len(), end));
        }
        effect.encode(&mut self.bytes);
    }

    /// The next effect names its place, so that the effects from here on can be read alone.
    pub(crate) fn split(&mut self) -> usize {
        self.last = None;
        self.bytes.len()
    }

    /// Removes all effects.
    pub(crate) fn clear(&mut self) {
        self.last = None;
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
    }

    /// The effects in order.
    pub fn iter(&self) -> impl Iterator<Item = (Place<'_>, Effect<'_>)> {
        self.since(0)
    }

    /// The effects whose bytes begin at `start` or later.
    pub(crate) fn since(&self, start: usize) -> impl Iterator<Item = (Place<'_>, Effect<'_>)> {
        let recorded = |read: Result<_, _>| read.expect("effects are recorded in their byte form");
        EffectIter::new(&self.bytes[start..]).map(recorded)
    }
}

/// Reads effects from their byte form. Ends after the first malformed one.
#[derive(Clone, Debug)]
pub struct EffectIter<'a> {
    rest: &'a [u8],
    place: Place<'a>,
}

impl<'a> EffectIter<'a> {
    /// Reads the effects in these bytes.
    pub fn new(bytes: &'a [u8]) -> EffectIter<'a> {
        EffectIter { rest: bytes, place: Place { database: 0, key: &[] } }
    }

    fn read(&mut self) -> Result<(Place<'a>, Effect<'a>), Malformed> {
        let tag = u8::decode(&mut self.rest)?;
        if tag & SAME_PLACE == 0 {
            let database = usize::decode(&mut self.rest)?;
            self.place = Place { database, key: <&[u8]>::decode(&mut self.rest)? };
        }
        Ok((self.place, Effect::decode(tag & !SAME_PLACE, &mut self.rest)?))
    }
}

impl<'a> Iterator for EffectIter<'a> {
    type Item = Result<(Place<'a>, Effect<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

// --- fields of effects ---

impl Field<'_> for SetForm {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn decode(from: &mut &[u8]) -> Result<SetForm, Malformed> {
        let forms = [SetForm::Integers, SetForm::Small, SetForm::Large];
        forms.get(usize::from(u8::decode(from)?)).copied().ok_or(Malformed)
    }
}

impl Field<'_> for Trim {
    fn encode(&self, out: &mut Vec<u8>) {
        match self.keep {
            Keep::Latest(count) => {
                false.encode(out);
                count.encode(out);
            }
            Keep::From(id) => {
                true.encode(out);
                id.encode(out);
            }
        }
        self.whole_nodes.encode(out);
    }

    fn decode(from: &mut &[u8]) -> Result<Trim, Malformed> {
        let keep = match bool::decode(from)? {
            false => Keep::Latest(usize::decode(from)?),
            true => Keep::From(StreamId::decode(from)?),
        };
        Ok(Trim { keep, whole_nodes: Option::decode(from)? })
    }
}

impl<'a> Field<'a> for Pairs<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.len().encode(out);
        self.iter().flatten().for_each(|text| text.encode(out));
    }

    fn decode(from: &mut &'a [u8]) -> Result<Pairs<'a>, Malformed> {
        let count = usize::decode(from)?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push([<&[u8]>::decode(from)?, <&[u8]>::decode(from)?]);
        }
        Ok(Cow::Owned(pairs))
    }
}

impl Field<'_> for Events {
    fn encode(&self, out: &mut Vec<u8>) {
        u64::from(self.bits()).encode(out);
    }

    fn decode(from: &mut &[u8]) -> Result<Events, Malformed> {
        let bits = u32::try_from(u64::decode(from)?).map_err(|_| Malformed)?;
        Events::from_bits(bits).ok_or(Malformed)
    }
}

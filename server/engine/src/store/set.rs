//! The set type: integers in order, a few members in a vector, many in a dictionary.
//!
//! The three forms are Redis's intset, listpack and hashtable, and clients can see them: integers
//! come in numeric order, a few members in insertion order.

use std::borrow::Cow;

use lockwheel_resp::number;

use crate::random::Random;
use crate::store::dict::{Dict, HashSeed};
use crate::store::random_sample;
use crate::store::string_value::digits;

/// When a set leaves its small forms. Redis's `set-max-intset-entries`, `set-max-listpack-entries`
/// and `-value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallSetLimits {
    /// A set with more integers than this becomes a dictionary.
    pub integers_max: usize,
    /// A set with more members than this becomes one, if one of them is not an integer.
    pub entries_max: usize,
    /// A set with a longer member than this becomes one, too.
    pub value_bytes_max: usize,
}

/// Members, each once. Never empty while it is stored: the key is removed with its last member.
#[derive(Clone, Debug)]
pub enum Set {
    /// In numeric order.
    Integers(Vec<i64>),
    /// In insertion order.
    Small(Vec<Box<[u8]>>),
    /// By member. In a box, so that it does not make other values larger.
    Large(Box<Dict<()>>),
}

/// The form of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetForm {
    /// [`Set::Integers`]
    Integers,
    /// [`Set::Small`]
    Small,
    /// [`Set::Large`]
    Large,
}

impl Default for Set {
    fn default() -> Set {
        Set::Integers(Vec::new())
    }
}

impl Set {
    /// The number of members.
    pub fn len(&self) -> usize {
        match self {
            Set::Integers(members) => members.len(),
            Set::Small(members) => members.len(),
            Set::Large(members) => members.len(),
        }
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this is a member.
    pub fn contains(&self, member: &[u8]) -> bool {
        match self {
            Set::Integers(members) => number::parse_integer(member)
                .is_some_and(|integer| members.binary_search(&integer).is_ok()),
            Set::Small(members) => members.iter().any(|m| **m == *member),
            Set::Large(members) => members.find(member).is_some(),
        }
    }

    /// The form of the set.
    pub fn form(&self) -> SetForm {
        match self {
            Set::Integers(_) => SetForm::Integers,
            Set::Small(_) => SetForm::Small,
            Set::Large(_) => SetForm::Large,
        }
    }

    /// An empty set of a form.
    pub(super) fn empty(form: SetForm, seed: HashSeed) -> Set {
        match form {
            SetForm::Integers => Set::Integers(Vec::new()),
            SetForm::Small => Set::Small(Vec::new()),
            SetForm::Large => Set::Large(Box::new(Dict::new(seed))),
        }
    }

    /// Takes a form. The members must fit into it.
    pub(super) fn take_form(&mut self, form: SetForm, seed: HashSeed) {
        if self.form() == form {
            return;
        }
        let mut taken = Set::empty(form, seed);
        for member in self.iter() {
            taken.add_in_form(&member);
        }
        *self = taken;
    }

    /// Adds a member and keeps the form; false if it exists or does not fit into the form.
    pub(super) fn add_in_form(&mut self, member: &[u8]) -> bool {
        if self.contains(member) {
            return false;
        }
        match (self, number::parse_integer(member)) {
            (Set::Integers(members), Some(integer)) => {
                let at = members.partition_point(|&m| m < integer);
                members.insert(at, integer);
            }
            (Set::Integers(_), None) => return false,
            (Set::Small(members), _) => members.push(member.into()),
            (Set::Large(members), _) => drop(members.insert_new(member, ())),
        }
        true
    }

    /// Prepares an empty or small set for `count` more members, of which the `first` is known.
    pub fn expect(&mut self, first: &[u8], count: usize, limits: SmallSetLimits, seed: HashSeed) {
        let (few_integers, few) = (count <= limits.integers_max, count <= limits.entries_max);
        let is_integer = number::parse_integer(first).is_some();
        match self {
            Set::Integers(members) if members.is_empty() => match () {
                () if is_integer && few_integers => {}
                () if few => *self = Set::Small(Vec::new()),
                () => self.make_large(seed),
            },
            Set::Integers(_) if !few_integers => self.make_large(seed),
            Set::Small(_) if !few => self.make_large(seed),
            _ => {}
        }
    }

    /// Adds a member; returns whether it is new.
    pub fn add(&mut self, member: &[u8], limits: SmallSetLimits, seed: HashSeed) -> bool {
        if self.contains(member) {
            return false;
        }
        self.make_room(member, number::parse_integer(member), limits, seed);
        self.add_in_form(member)
    }

    /// Takes the integer form if all members are integers and there are few enough.
    pub fn settle(&mut self, limits: SmallSetLimits) {
        if matches!(self, Set::Integers(_)) || self.len() > limits.integers_max {
            return;
        }
        let integers: Option<Vec<i64>> = self.iter().map(|m| number::parse_integer(&m)).collect();
        if let Some(mut integers) = integers {
            integers.sort_unstable();
            *self = Set::Integers(integers);
        }
    }

    /// Adds all members again, to the smallest form that holds them.
    pub fn rebuild(&mut self, limits: SmallSetLimits, seed: HashSeed) {
        let mut rebuilt = Set::Small(Vec::new());
        for member in self.iter() {
            rebuilt.add(&member, limits, seed);
        }
        *self = rebuilt;
    }

    /// Removes a member; returns whether it existed.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match self {
            Set::Integers(members) => {
                let integer = number::parse_integer(member);
                let at = integer.and_then(|integer| members.binary_search(&integer).ok());
                at.map(|at| members.remove(at)).is_some()
            }
            Set::Small(members) => {
                let at = members.iter().position(|m| **m == *member);
                at.map(|at| members.remove(at)).is_some()
            }
            Set::Large(members) => members.remove(member).is_some(),
        }
    }

    /// All members.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let (integers, small, large) = match self {
            Set::Integers(members) => (&members[..], &[][..], None),
            Set::Small(members) => (&[][..], &members[..], None),
            Set::Large(members) => (&[][..], &[][..], Some(members)),
        };
        let large = large.into_iter().flat_map(|members| members.iter().map(|(m, ())| m));
        let texts = small.iter().map(|m| &**m).chain(large).map(Cow::Borrowed);
        integers.iter().map(|&integer| digits(integer)).chain(texts)
    }

    /// A random member, nearly uniform; `None` if there is none.
    pub fn random(&self, random: &mut Random) -> Option<Cow<'_, [u8]>> {
        if self.is_empty() {
            return None;
        }
        match self {
            Set::Integers(members) => Some(digits(members[random.below(members.len())])),
            Set::Small(members) => Some(Cow::Borrowed(&members[random.below(members.len())])),
            Set::Large(members) => {
                members.random(random).map(|slot| Cow::Borrowed(members.key(slot)))
            }
        }
    }

    /// `count` different members; all of them if there are not more.
    pub fn random_distinct(&self, count: usize, random: &mut Random) -> Vec<Cow<'_, [u8]>> {
        if count >= self.len() {
            return self.iter().collect();
        }
        if let Set::Large(members) = self
            && count <= members.len() / 2
        {
            let slots = members.random_distinct(count, random);
            return slots.map(|at| Cow::Borrowed(members.key(at))).collect();
        }
        random_sample(self.iter().collect(), count, random)
    }

    /// Some members, from `cursor` on, and the next cursor, 0 at the end. The small forms are
    /// returned at once, as in Redis.
    pub fn scan(&self, cursor: u64, count: usize) -> (Vec<Cow<'_, [u8]>>, u64) {
        match self {
            Set::Integers(_) | Set::Small(_) => (self.iter().collect(), 0),
            Set::Large(members) => {
                let (slots, next) = members.scan(cursor, count);
                (slots.map(|at| Cow::Borrowed(members.key(at))).collect(), next)
            }
        }
    }

    /// The name that `OBJECT ENCODING` replies with.
    pub fn encoding(&self) -> &'static str {
        match self {
            Set::Integers(_) => "intset",
            Set::Small(_) => "listpack",
            Set::Large(_) => "hashtable",
        }
    }

    /// Takes a form that has room for one more member, which is known to be absent. A set never
    /// returns to a smaller form, as in Redis.
    fn make_room(
        &mut self,
        member: &[u8],
        integer: Option<i64>,
        limits: SmallSetLimits,
        seed: HashSeed,
    ) {
        let fits = self.len() < limits.entries_max && member.len() <= limits.value_bytes_max;
        match self {
            Set::Integers(members) if integer.is_some() => {
                if members.len() >= limits.integers_max {
                    self.make_large(seed);
                }
            }
            Set::Integers(members) => {
                let longest = members.first().into_iter().chain(members.last());
                if fits && longest.map(|&m| digits(m).len()).all(|n| n <= limits.value_bytes_max) {
                    self.take_form(SetForm::Small, seed);
                } else {
                    self.make_large(seed);
                }
            }
            Set::Small(_) if !fits => self.make_large(seed),
            Set::Small(_) | Set::Large(_) => {}
        }
    }

    fn make_large(&mut self, seed: HashSeed) {
        self.take_form(SetForm::Large, seed);
    }
}

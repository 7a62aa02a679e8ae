//! A digest of the state: equal for two states between which no client can distinguish. It covers
//! keys, values, encodings, deadlines, consumer groups, fencing tokens and replicated users; not
//! the time of the last use of a key, nor whether a key is plain, nor the order of the members of
//! large values.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use super::Keyspace;
use super::effects::codec::Field;
use super::effects::image::canonical;
use super::records::Record;
use super::state::State;

/// A digest of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u128);

impl State {
    /// The digest of the databases, of the texts of function libraries, of the rules of users and
    /// of the last fencing token.
    pub fn digest(&self) -> Digest {
        let mut hasher = SipHasher13::new_with_keys(0, 0);
        self.write_canonical(|bytes| hasher.write(bytes));
        Digest(hasher.finish128().into())
    }

    /// The bytes of the digest. To compare them takes less time than two digests.
    pub(crate) fn canonical(&self) -> Vec<u8> {
        let mut all = Vec::new();
        self.write_canonical(|bytes| all.extend_from_slice(bytes));
        all
    }

    /// Passes the canonical bytes of the state to `write`, in parts.
    fn write_canonical(&self, mut write: impl FnMut(&[u8])) {
        self.keyspace.write_canonical(&mut write);
        let mut bytes = Vec::new();
        self.last_token.encode(&mut bytes);
        let libraries = self.libraries.iter().flat_map(|libraries| libraries.libraries());
        libraries.for_each(|library| (&*library.code).encode(&mut bytes));
        let users = self.users.rules();
        users.map(|rules| rules.len()).encode(&mut bytes);
        for (name, rules) in users.into_iter().flatten() {
            (&**name).encode(&mut bytes);
            (&**rules).encode(&mut bytes);
        }
        write(&bytes);
    }
}

impl Keyspace {
    /// Passes the canonical bytes of all databases to `write`, in parts.
    fn write_canonical(&self, write: &mut impl FnMut(&[u8])) {
        let mut bytes = Vec::new();
        for (number, database) in self.databases.iter().enumerate() {
            let records = database.records();
            if records.is_empty() {
                continue;
            }
            number.encode(&mut bytes);
            records.len().encode(&mut bytes);
            let sorted: BTreeMap<&[u8], Record<'_>> = records.iter().collect();
            for (key, record) in sorted {
                key.encode(&mut bytes);
                contents(record, &mut bytes);
                write(&bytes);
                bytes.clear();
            }
        }
    }

    /// The plain keys of all databases, which the digest does not show.
    pub(crate) fn plain_keys(&self) -> BTreeSet<(usize, &[u8])> {
        let mut plain = BTreeSet::new();
        for (number, database) in self.databases.iter().enumerate() {
            let records = database.records().iter().filter(|(_, record)| record.is_plain());
            plain.extend(records.map(|(key, _)| (number, key)));
        }
        plain
    }

    /// The canonical bytes of what a client can observe of a key; `None` if there is no such key.
    pub fn contents_of(&self, number: usize, key: &[u8]) -> Option<Vec<u8>> {
        let slot = self.find(number, key)?;
        let mut bytes = Vec::new();
        contents(self.database(number).record(slot), &mut bytes);
        Some(bytes)
    }
}

fn contents(record: Record<'_>, out: &mut Vec<u8>) {
    record.deadline().encode(out);
    let start = out.len();
    canonical(record.value(), out);
    let length = out.len() - start;
    length.encode(out);
}

//! The byte form of a stream in effects.

use std::sync::Arc;

use super::group::Group;
use super::id::StreamId;
use super::nodes::Nodes;
use super::{Entry, Names, Stream};
use crate::store::effects::codec::Field;
use crate::store::serialised::Malformed;

impl<'a> Field<'a> for Stream {
    fn encode(&self, out: &mut Vec<u8>) {
        for id in [self.last_id, self.max_deleted_id] {
            id.encode(out);
        }
        self.entries_added.encode(out);
        self.nodes.encode(out);
        self.entries.len().encode(out);
        for (&id, entry) in &self.entries {
            id.encode(out);
            // Most entries have the names of their node.
            let node = self.nodes.of(id);
            let shares = node.is_some_and(|node| Arc::ptr_eq(&node.names, &entry.names));
            shares.encode(out);
            if !shares {
                entry.names.len().encode(out);
                entry.names.iter().for_each(|name| (&**name).encode(out));
            }
            entry.values.iter().for_each(|value| (&**value).encode(out));
        }
        self.groups.len().encode(out);
        for (name, group) in &self.groups {
            (&**name).encode(out);
            group.encode(out);
        }
    }

    fn decode(from: &mut &'a [u8]) -> Result<Stream, Malformed> {
        let mut stream = Stream {
            last_id: StreamId::decode(from)?,
            max_deleted_id: StreamId::decode(from)?,
            entries_added: i64::decode(from)?,
            nodes: Nodes::decode(from)?,
            ..Stream::default()
        };
        for _ in 0..usize::decode(from)? {
            let id = StreamId::decode(from)?;
            let names: Names = if bool::decode(from)? {
                Arc::clone(&stream.nodes.of(id).ok_or(Malformed)?.names)
            } else {
                let count = usize::decode(from)?;
                texts(count, from)?.into()
            };
            let values = texts(names.len(), from)?.into();
            stream.entries.insert(id, Entry { names, values });
        }
        for _ in 0..usize::decode(from)? {
            let name = <&[u8]>::decode(from)?;
            stream.groups.insert(name.into(), Group::decode(from)?);
        }
        Ok(stream)
    }
}

fn texts(count: usize, from: &mut &[u8]) -> Result<Vec<Box<[u8]>>, Malformed> {
    (0..count).map(|_| <&[u8]>::decode(from).map(Box::from)).collect()
}

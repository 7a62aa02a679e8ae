//! The identity of a node: its number, its cluster and its key, in a small file of its folder.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lockwheel_log::{Directory, small_file};
use lockwheel_raft::{Members, NodeId};
use serde::{Deserialize, Serialize};

use super::authority::Authority;
use super::keys::{Credentials, NodeKey, Result};

/// The folder of a node, in that of `dir`.
const FOLDER: &str = "raft";

/// The file in that folder.
const FILE: &str = "node.json";

/// Permission bits of the folder: only the user of the server can read it.
const FOLDER_MODE: u32 = 0o700;

/// The identity of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The name of the cluster.
    pub(super) cluster: String,
    /// The number of the node, which no other node has or has had.
    pub(super) node: NodeId,
    /// Whether the node has been one of those that vote: then its log must be there. A node that
    /// has lost its log has also lost what it has promised.
    pub(super) is_member: bool,
    /// Where other nodes may be reached: this node itself, or the one that has admitted it.
    pub(super) address: String,
    /// Its key; `None` if an earlier program has written the file.
    #[serde(default)]
    pub(super) key: Option<NodeKey>,
    /// The authority of a cluster that an earlier program has begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) authority: Option<Authority>,
    /// The nodes that count until the log of this one has any: those that have admitted it, or the
    /// node itself if it begins the cluster.
    #[serde(default)]
    pub(super) members: Members,
}

impl Identity {
    /// What the node shows on its connections.
    pub(super) fn credentials(&self) -> Result<Credentials> {
        // Without a recorded key, any that the authority has signed is accepted.
        let key = self.key.clone().map_or_else(NodeKey::generate, Ok)?;
        Credentials::new(&key, Some(self.node), self.authority.as_ref())
    }

    /// The fingerprint of its key; empty if it has none.
    pub(super) fn fingerprint(&self) -> Result<String> {
        self.key.as_ref().map_or(Ok(String::new()), NodeKey::fingerprint)
    }

    /// The folder of the node whose `dir` is this.
    pub(super) fn folder(dir: &Path) -> PathBuf {
        dir.join(FOLDER)
    }

    /// Reads the identity; `None` if there is no node.
    pub(super) fn read(dir: &Path) -> io::Result<Option<Identity>> {
        let disk = match Directory::read_only(&Identity::folder(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let Some(bytes) = small_file::read(&disk, FILE)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(io::Error::from)
    }

    /// Writes the identity, durably.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        self.write_in(&Identity::folder(dir))
    }

    /// As [`Identity::write`], in this folder. Only the user of the server can read it: it has the
    /// key of the node.
    pub(super) fn write_in(&self, folder: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => restrict(folder)?,
            created => created?,
        }
        let bytes = serde_json::to_vec_pretty(self)?;
        small_file::write(&Directory::open(folder)?, FILE, &bytes)
    }
}

/// Lets only the user of the server read a folder that exists.
fn restrict(folder: &Path) -> io::Result<()> {
    let mut permissions = fs::metadata(folder)?.permissions();
    if permissions.mode() & 0o077 == 0 {
        return Ok(());
    }
    permissions.set_mode(FOLDER_MODE);
    fs::set_permissions(folder, permissions)
}

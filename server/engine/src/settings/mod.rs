//! The settings of the engine, and the table of all directives.
//!
//! - `table` has a row for each directive with an effect: name, kind of value, default. Begin here.
//! - `without_effect` has the rows of the others, and names that are skipped or refused.
//! - `row` says what a row has, and finds rows; `field` connects them with fields.
//! - `values` has the values of the directives that the engine uses, and changes them.
//! - `value` reads and shows a value; `types` are kinds of values; `compat_version` is the version
//!   that the server claims to be; `sentinel` has the directives of sentinels.
//!
//! Rule: no file is read here; the program does that.

mod compat_version;
mod field;
mod row;
mod sentinel;
mod table;
mod types;
mod value;
mod values;
mod without_effect;

pub use compat_version::{CompatVersion, Vendor};
pub use row::{Access, Directive, Mutability, Role, find, names, rows};
pub use sentinel::{Master, Peer, Sentinel, SetOptionError};
pub use types::{
    ChannelDefault, ClientClass, ClientOutputBufferLimits, EndpointType, FlushPolicy, LogLevel,
    MaxmemoryPolicy, MemoryShare, Mode, OutputBufferLimit, Permission, Secret, Supervised,
};
pub use value::{REDACTED, Value, ValueKind, WRONG_NUMBER};
pub use values::{
    Allocator, AllocatorUsage, Change, ConfigError, LOCKWHEEL_VERSION, NOT_UTF8, REDIS_VERSION,
    Settings, SettingsUser,
};
pub use without_effect::{FORBIDDEN, FOREIGN, FOREIGN_PREFIXES};

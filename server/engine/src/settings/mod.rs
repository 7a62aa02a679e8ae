//! The settings of the engine, and the table of all directives.
//!
//! - `directive` has a row for each directive with an effect: type, name, kind of value, default.
//!   From the rows come the constants for [`Settings::get`], and the fields of [`Settings`]. Begin
//!   here.
//! - `without_effect` has the rows of the others, and names that are skipped or refused.
//! - `row` says what a row has, and finds rows by name, for `CONFIG` and configuration files.
//! - `values` reads and changes values; `value` parses and shows them; `field` converts them to the
//!   types of directives, of which `types` has those that are more than a number or a text.
//! - `compat_version` is the version that the server claims to be; `sentinel` has the directives of
//!   sentinels.
//!
//! Rule: no file is read here; the program does that.

mod compat_version;
pub mod directive;
mod field;
mod row;
mod sentinel;
mod types;
mod value;
mod values;
mod without_effect;

pub use compat_version::{CompatVersion, Vendor};
pub use directive::Settings;
pub use field::{Field, Setting};
pub use row::{Access, Directive, Mutability, Row, Usage, find, names, rows};
pub use sentinel::{Master, OtherSentinel, Sentinel, SetOptionError};
pub use types::{
    Allocator, AllocatorUsage, ChannelDefault, ClientClass, ClientOutputBufferLimits, EndpointType,
    FlushPolicy, LogFormat, LogLevel, MaxmemoryPolicy, MemoryShare, Mode, OutputBufferLimit,
    Permission, SavePoint, Secret, Supervised, TlsAuthClients,
};
pub use value::{REDACTED, Value, ValueKind, WRONG_NUMBER};
pub use values::{
    Adoption, Change, ConfigError, LOCKWHEEL_VERSION, NOT_UTF8, REDIS_VERSION, SettingsReader,
    SettingsUser,
};
pub use without_effect::{FORBIDDEN, FOREIGN, FOREIGN_PREFIXES};

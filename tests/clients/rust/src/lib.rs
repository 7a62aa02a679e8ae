//! Shared code of the tests of this suite: the servers, the report, and the properties of a lock.

pub mod properties;
pub mod report;
pub mod servers;

//! What every test of this suite needs: the servers, the report, and the properties of a lock.

pub mod properties;
pub mod report;
pub mod servers;

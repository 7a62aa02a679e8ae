//! A project whose tests take locks.

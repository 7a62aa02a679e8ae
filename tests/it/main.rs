//! One integration binary, one file per property.

mod scripts;
mod seed_000;
mod seed_002;
mod seed_003;
mod seed_004;

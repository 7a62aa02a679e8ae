//! What threads share in the commit gate and in outboxes. The test `interleavings` replaces it, to
//! decide the order of their steps.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

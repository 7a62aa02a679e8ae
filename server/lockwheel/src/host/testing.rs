//! What unit tests of several folders use.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use lockwheel_engine::Engine;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::settings::Settings;
use lockwheel_engine::timing::time::{Millis, Rate};

use super::Host;
use super::runtime_files::RuntimeFiles;
use crate::clock::Clock;

/// A host with default settings, whose clock is stopped at 0.
pub(crate) fn host() -> Arc<Host> {
    let clock = Clock::controlled(Some(Millis(0)), Rate::STOPPED);
    let engine = Engine::new(Settings::default(), Process::default(), clock.now(), [0; 4]);
    Host::new(engine, clock, RuntimeFiles::default()).expect("a host")
}

/// Polls a future once, without waking its task later.
pub(crate) fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

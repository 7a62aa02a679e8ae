//! What this process uses, for `INFO`: memory and processor time, as the system shows them.

use std::sync::Arc;

use lockwheel_engine::engine::inputs::{CpuTimes, Process, ProcessUsage};
use nix::sys::resource::{Usage, UsageWho as Scope, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use parking_lot::Mutex;

use crate::clock;

/// The id of the thread that accepts connections and ends leases, once it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct MainThread(Arc<Mutex<Option<i32>>>);

impl MainThread {
    /// Sets the thread to the calling one.
    pub(crate) fn set_to_this(&self) {
        #[cfg(target_os = "linux")]
        self.0.lock().replace(nix::unistd::gettid().as_raw());
    }
}

/// This process, with the main thread of a server.
pub(crate) fn process(main_thread: &MainThread) -> Process {
    let main_thread = main_thread.clone();
    let executable = std::env::current_exe().unwrap_or_default();
    Process {
        id: std::process::id(),
        executable: executable.to_string_lossy().into_owned(),
        usage: Arc::new(move || usage(&main_thread)),
        clock_ns: clock::monotonic_ns,
        #[cfg(all(target_os = "linux", not(feature = "simulation")))]
        tick_ns: clock::tick_ns,
        started_ns: clock::monotonic_ns(),
        ..Process::default()
    }
}

fn usage(main_thread: &MainThread) -> ProcessUsage {
    let times = |scope| getrusage(scope).ok().map(|usage| cpu_times(&usage));
    ProcessUsage {
        resident_bytes: kib_in("/proc/self/status", "VmRSS:").or_else(largest_resident_bytes),
        machine_bytes: kib_in("/proc/meminfo", "MemTotal:"),
        process: times(Scope::RUSAGE_SELF),
        children: times(Scope::RUSAGE_CHILDREN),
        main_thread: main_thread.0.lock().and_then(thread_times),
    }
}

/// The largest resident memory so far, where the present one is not shown.
fn largest_resident_bytes() -> Option<u64> {
    let largest = u64::try_from(getrusage(Scope::RUSAGE_SELF).ok()?.max_rss()).ok()?;
    // Apple's systems count in bytes.
    Some(if cfg!(target_vendor = "apple") { largest } else { largest * 1024 })
}

fn cpu_times(usage: &Usage) -> CpuTimes {
    let us = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or(0);
    CpuTimes { system_us: us(usage.system_time()), user_us: us(usage.user_time()) }
}

/// A number of KiB in a file of Linux, in bytes.
fn kib_in(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name))?;
    kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The times of another thread of this process. Only Linux shows them.
fn thread_times(thread: i32) -> Option<CpuTimes> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name of the thread is in parentheses, and may contain any character.
    let (_, fields) = text.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(FIELDS_BEFORE_TIMES);
    let mut next_us = || Some(times.next()?.parse::<u64>().ok()? * 1_000_000 / TICKS_PER_SECOND);
    let (user_us, system_us) = (next_us()?, next_us()?);
    Some(CpuTimes { system_us, user_us })
}

/// The fields between the name and the times in `/proc/<id>/stat`.
const FIELDS_BEFORE_TIMES: usize = 11;

/// The unit of times in `/proc`: the same on all architectures that Rust has for Linux.
const TICKS_PER_SECOND: u64 = 100;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn usage_of_this_process_is_known() {
        let main_thread = MainThread::default();
        main_thread.set_to_this();
        let usage = usage(&main_thread);
        assert!(usage.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(usage.machine_bytes > usage.resident_bytes);
        assert!(largest_resident_bytes() >= Some(100_000));
        let (process, thread) = (usage.process.expect("times"), usage.main_thread.expect("times"));
        assert!(thread.system_us <= process.system_us + 1_000_000 / TICKS_PER_SECOND);
        assert!(usage.children.is_some());
    }
}

//! Servers with a log: their disks, their starts and their rewrites.

use std::thread;
use std::time::{Duration, Instant};

use lockwheel_comparison::Outcome;

use crate::measure::load::{LockType, hold};
use crate::measure::running::Running;
use crate::measure::servers::ComparedServer;

/// Factor by which a quick run has fewer locks.
pub(super) const QUICK_DIVISOR: u32 = 100;
/// Options with which the log is rewritten only when a workload requests it.
pub(super) const NO_REWRITE: [&str; 2] = ["--auto-aof-rewrite-percentage", "0"];
/// The longest time of a rewrite.
const REWRITE_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause between two looks at the state of a rewrite.
const REWRITE_POLL: Duration = Duration::from_millis(20);

/// The parameters of a workload on a disk.
pub(super) fn on_disk(parameters: &str, flush_delay: Duration) -> String {
    match flush_delay.is_zero() {
        true => parameters.to_owned(),
        false => format!("{parameters}, flush {} ms longer", flush_delay.as_secs_f64() * 1e3),
    }
}

/// Starts a server on a disk, and checks that the delay works: if its library cannot be loaded, the
/// server starts without it.
pub(super) fn start(server: &ComparedServer, flush_delay: Duration) -> Outcome<Running> {
    let running = server.start_with_log(&server.log_directory(flush_delay)?, &[])?;
    let began = Instant::now();
    running.ask(&["SET", "flushed", "", "PX", "1"])?;
    match began.elapsed() < flush_delay {
        true => Err("the flushes of the server are not delayed".into()),
        false => Ok(running),
    }
}

/// Takes locks for an hour without flushing each, and flushes them all at the end.
pub(super) fn hold_and_flush(running: &Running, locks: u32) -> Outcome<()> {
    running.ask(&["CONFIG", "SET", "appendfsync", "no"])?;
    hold(running.address, locks, LockType::String)?;
    running.ask(&["CONFIG", "SET", "appendfsync", "always"])?;
    running.ask(&["SET", "flushed", "", "PX", "1"])?;
    Ok(())
}

/// Rewrites the log (Lockwheel: takes a snapshot) and waits for the end. Returns how long it took.
pub(super) fn rewrite(running: &Running) -> Outcome<Duration> {
    let began = Instant::now();
    let mut wire = running.open()?;
    wire.call(&["BGREWRITEAOF"])?;
    loop {
        thread::sleep(REWRITE_POLL);
        let info = String::from_utf8_lossy(&wire.call(&["INFO", "persistence"])?.text).into_owned();
        let holds = |field: &str| info.lines().any(|line| line.trim_end() == field);
        let fields = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];
        if fields.into_iter().all(holds) && holds("rdb_bgsave_in_progress:0") {
            return match holds("aof_last_bgrewrite_status:ok") {
                true => Ok(began.elapsed()),
                false => Err("the log could not be rewritten".into()),
            };
        }
        if began.elapsed() > REWRITE_TIMEOUT {
            return Err("the rewrite of the log does not end".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{on_disk, start};
    use crate::measure::servers::ComparedServer;

    #[test]
    fn disk_is_named_by_its_delay() {
        let named = |us| on_disk("1 connection", Duration::from_micros(us));
        assert_eq!(named(0), "1 connection");
        assert_eq!(named(250), "1 connection, flush 0.25 ms longer");
        assert_eq!(named(2000), "1 connection, flush 2 ms longer");
    }

    #[test]
    fn flushes_of_a_server_are_delayed() {
        start(&ComparedServer::lockwheel(), Duration::from_millis(50)).expect("delayed flushes");
    }
}

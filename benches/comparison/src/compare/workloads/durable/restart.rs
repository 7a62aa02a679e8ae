//! How long a server takes to start with a log of many locks, and the size of the log.

use std::rc::Rc;

use lockwheel_comparison::Outcome;

use super::logged::{NO_REWRITE, QUICK_DIVISOR, hold_and_flush, rewrite};
use crate::measure::effort::Effort;
use crate::measure::load::grouped;
use crate::measure::log_directory::LogDirectory;
use crate::measure::metric::{Metric, Reading};
use crate::measure::running::Running;
use crate::measure::servers::ComparedServer;
use crate::workloads::workload::Workload;

pub(super) fn all() -> Vec<Box<dyn Workload>> {
    vec![Box::new(Restart { locks: 1_000_000 })]
}

struct Restart {
    locks: u32,
}

impl Workload for Restart {
    fn group(&self) -> &'static str {
        "Durable: restart"
    }

    fn parameters(&self) -> String {
        format!("{} locks", grouped(self.locks))
    }

    fn note(&self) -> &'static str {
        "From before the process is created until it replies to PING with PONG, with the log \
         of strings with a lease of an hour, after an end by SIGTERM. The log is in the memory of \
         the system. Once it is as it was written, once it has been rewritten by BGREWRITEAOF, \
         which takes a snapshot in Lockwheel. The servers run on any processor."
    }

    fn measures_twice(&self) -> bool {
        false
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let locks = if effort.quick { self.locks / QUICK_DIVISOR } else { self.locks };
        let directory = server.log_directory(std::time::Duration::ZERO)?;
        let running = server.start_with_log_anywhere(&directory, &NO_REWRITE)?;
        hold_and_flush(&running, locks)?;
        let (running, mut readings) = restart(server, running, &directory, locks, "as written")?;
        rewrite(&running)?;
        let (running, rewritten) = restart(server, running, &directory, locks, "rewritten")?;
        running.stop()?;
        readings.extend(rewritten);
        Ok(readings)
    }
}

/// Ends the server and starts it again. Returns the time until it is ready and the size of the log.
fn restart(
    server: &ComparedServer,
    running: Running,
    directory: &Rc<LogDirectory>,
    locks: u32,
    state: &str,
) -> Outcome<(Running, Vec<Reading>)> {
    running.stop()?;
    let mib = directory.bytes()? as f64 / f64::from(1 << 20);
    let running = server.start_with_log_anywhere(directory, &NO_REWRITE)?;
    let mut wire = running.open()?;
    let restored = wire.call(&["EXISTS", "lock:{0000000000}", "flushed"])?;
    let last = format!("lock:{{{:010}}}", locks - 1);
    if restored.text != b"1" || wire.call(&["EXISTS", &last])?.text != b"1" {
        return Err("the locks were not restored".into());
    }
    let ready_ms = running.start.as_secs_f64() * 1e3;
    let readings = vec![
        Metric::cost(format!("log {state}: until ready"), "ms").with(ready_ms),
        Metric::cost(format!("log {state}: size"), "MiB").with(mib),
    ];
    Ok((running, readings))
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn restart_workload_runs() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}

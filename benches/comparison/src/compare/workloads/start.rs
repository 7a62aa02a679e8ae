//! How long a server takes to start: until its first reply.

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use lockwheel_comparison::{Outcome, ping};

use crate::measure::effort::Effort;
use crate::measure::metric::{Metric, Reading};
use crate::measure::servers::{ComparedServer, ServerType};
use crate::options::START_IN_PROCESS;
use crate::progress;
use crate::workloads::workload::Workload;

/// Starts in one measurement, which is their median.
const STARTS: usize = 9;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    vec![Box::new(Start)]
}

struct Start;

impl Workload for Start {
    fn group(&self) -> &'static str {
        "Start"
    }

    fn parameters(&self) -> String {
        format!("median of {STARTS}")
    }

    fn note(&self) -> &'static str {
        "From before the process is created until it has replied to PING, polled every 50 us. In \
         process is the time for a test that embeds the server: from `Server::start()` to the \
         reply to PING on a new connection, in a process that has started no server before."
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let starts = if effort.quick { 1 } else { STARTS };
        let process = (0..starts).map(|_| Ok(server.start(&[])?.start));
        let mut readings = vec![Metric::cost("process", "ms").with(median_ms(process)?)];
        if server.server_type == ServerType::Lockwheel {
            let within = (0..starts).map(|_| start_in_fresh_process());
            readings.push(Metric::info("in process", "ms").with(median_ms(within)?));
        }
        Ok(readings)
    }
}

fn median_ms(spans: impl Iterator<Item = Outcome<Duration>>) -> Outcome<f64> {
    let mut spans = spans.collect::<Outcome<Vec<_>>>()?;
    spans.sort();
    Ok(spans[spans.len() / 2].as_secs_f64() * 1e3)
}

/// Starts a fresh process that starts a server within itself.
fn start_in_fresh_process() -> Outcome<Duration> {
    let program = std::env::current_exe()?;
    let output = Command::new(program).arg(START_IN_PROCESS).output()?;
    let nanoseconds = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// Prints how long a server takes to start in this process, for [`start_in_fresh_process`].
pub(crate) fn print_in_process() -> ExitCode {
    match start_in_process() {
        Ok(span) => {
            println!("{}", span.as_nanos());
            ExitCode::SUCCESS
        }
        Err(error) => {
            progress::print(&format!("compare: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts a server in this process and returns the time until its first reply.
fn start_in_process() -> Outcome<Duration> {
    let began = Instant::now();
    let server = lockwheel::Server::start()?;
    ping(server.addr())?;
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::start_in_process;

    #[test]
    fn server_in_this_process_replies() {
        assert!(start_in_process().is_ok());
    }
}

//! How long it takes until a server answers. It must not know what the server does meanwhile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::figures::{Metric, Reading};
use crate::options::START_IN_PROCESS;
use crate::peers::Peer;
use crate::workload::{Effort, Workload};
use crate::{Outcome, progress};

/// Starts of one measurement, of which the median counts.
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

    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let starts = if effort.quick { 1 } else { STARTS };
        let process = (0..starts).map(|_| Ok(peer.start(&[])?.start));
        let mut readings = vec![Metric::less("process", "ms").is(median_ms(process)?)];
        if peer.ours {
            let within = (0..starts).map(|_| start_within_another());
            readings.push(Metric::told("in process", "ms").is(median_ms(within)?));
        }
        Ok(readings)
    }
}

fn median_ms(spans: impl Iterator<Item = Outcome<Duration>>) -> Outcome<f64> {
    let mut spans = spans.collect::<Outcome<Vec<_>>>()?;
    spans.sort();
    Ok(spans[spans.len() / 2].as_secs_f64() * 1e3)
}

/// Has a fresh process start a server within itself, once.
fn start_within_another() -> Outcome<Duration> {
    let program = std::env::current_exe()?;
    let output = Command::new(program).arg(START_IN_PROCESS).output()?;
    let nanoseconds = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}

/// Says how long it takes to start a server in this process, for [`start_within_another`].
pub(crate) fn tell() -> ExitCode {
    match in_process() {
        Ok(span) => {
            println!("{}", span.as_nanos());
            ExitCode::SUCCESS
        }
        Err(error) => {
            progress::say(&format!("compare: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Starts a server in this process. How long until it answers?
fn in_process() -> Outcome<Duration> {
    let began = Instant::now();
    let server = lockwheel::Server::start()?;
    let mut stream = TcpStream::connect(server.addr())?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = [0; "+PONG\r\n".len()];
    stream.read_exact(&mut reply)?;
    let span = began.elapsed();
    if &reply == b"+PONG\r\n" { Ok(span) } else { Err("no PONG".into()) }
}

#[cfg(test)]
mod tests {
    use super::in_process;

    #[test]
    fn a_server_in_this_process_answers() {
        assert!(in_process().is_ok());
    }
}

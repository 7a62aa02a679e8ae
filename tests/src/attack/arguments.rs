//! Sends random arguments to every command, on Lockwheel and on `redis-server`.

use std::net::SocketAddr;
use std::time::Duration;

use lockwheel_compat::fuzz::{self, Manner, Options, Progress};
use lockwheel_compat::{Address, Interrupt};

use super::Report;
use super::attack_target::AttackTarget;
use crate::target::Target;

/// Sends `requests` requests to both servers. `None` without a `redis-server`.
pub fn attack(requests: usize, seed: u64, progress: &mut dyn Progress) -> Option<Report> {
    let oracle = Target::redis()?;
    let server = AttackTarget::start(&["--compat-version", "7.0"]);
    let address = |of: SocketAddr| Address::parse(&format!("redis://{of}/0")).expect("an address");
    let options = Options {
        target: address(server.address()),
        reference: address(oracle.address()),
        count: requests,
        seed,
        manner: Manner::Arguments,
        interrupt: Interrupt::default(),
    };
    let mut report = Report::default();
    match fuzz::fuzz(&options, progress) {
        Ok(found) => {
            report.figures.extend(found.text().lines().map(str::to_owned));
            if !found.is_green() {
                report.add_problem(format!("{} differences", found.found.len()));
            }
        }
        Err(error) => report.add_problem(error.to_string()),
    }
    report.figures.push(format!("{:?}", server.held()));
    if let Some(problem) = server.end(Duration::from_secs(30)) {
        report.add_problem(problem);
    }
    Some(report)
}

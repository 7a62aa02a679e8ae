//! `lockwheel prove`: the command line of the crate `lockwheel-prove`.

mod options;
pub(crate) mod output;
mod progress;

use std::io::{self, Write};
use std::process::ExitCode;

use lockwheel_compat::Interrupt;
use lockwheel_prove::demo::Demo;
use lockwheel_prove::{Plan, RATE};

use self::options::{Arguments, FaultOptions};
use self::progress::Meter;
use crate::compat_command::shared::{advised, handle_signals, print, run};

/// The name of the command.
const NAME: &str = "lockwheel prove";

/// What to do about a server with which a run is not possible: see [`advised`].
const ADVICE: &[(&str, &str)] =
    &[("NOPERM", "give the user the rule that --print-acl prints, with the same options")];

/// Runs the subcommand with the arguments after `prove`.
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let advise = |problem: String| advised(&problem, ADVICE);
    run(NAME, arguments, |arguments: &Arguments| perform(arguments).map_err(advise))
}

fn perform(arguments: &Arguments) -> Result<u8, String> {
    if arguments.print_acl {
        print(&format!("{}\n", arguments.acl_rule()?));
        return Ok(0);
    }
    let path = arguments.output.as_deref();
    let interrupt = Interrupt::default();
    output::check(path)?;
    handle_signals(&interrupt, NAME);
    let plan = arguments.plan(&interrupt)?;
    let FaultOptions { demo, manual, .. } = arguments.faults;
    announce(&plan, demo, manual);
    let mut meter = Meter::new(plan.duration, manual);
    let report = lockwheel_prove::run(plan, &mut meter);
    meter.clear();
    output::write(&report?, arguments.format, path)
}

/// Says what the run does.
fn announce(plan: &Plan, demo: Option<Demo>, is_manual: bool) {
    let rate = plan.rate;
    let safety = match (demo, rate) {
        (Some(_), _) => "on servers of the demo".to_owned(),
        (None, ..=RATE) => "safe for servers in production".to_owned(),
        (None, _) => format!("servers in production are safe with {RATE}"),
    };
    let seconds = plan.duration.as_secs_f64();
    let load =
        format!("{rate} requests a second of all clients together, for {seconds} s: {safety}");
    let makes_servers_fail = demo.is_none() && !is_manual && plan.faults.is_some();
    let lines = [
        demo.map(|demo| format!("{demo}: {}", demo.description())),
        Some(load),
        makes_servers_fail.then(|| "this run makes servers fail".to_owned()),
    ];
    for line in lines.into_iter().flatten() {
        let _ = writeln!(io::stderr(), "{NAME}: {line}");
    }
}

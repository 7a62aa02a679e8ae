//! The options of `lockwheel prove`, and the plan that they describe.

use std::fmt::Display;
use std::io::{self, BufReader, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser};
use lockwheel_compat::time::show_span;
use lockwheel_compat::{Address, Interrupt};
use lockwheel_prove::demo::{self, Demo, DemoRun};
use lockwheel_prove::faults::{FaultSource, Hooks, Manual, Processes};
use lockwheel_prove::{LOCK_KINDS, LockKind, Plan, REDLOCK, Target, Topology};

use super::NAME;
use super::output::Form;
use crate::compat_command::shared::{Span, complete_password};
use crate::limits::{PROVE_CLIENTS_MAX, PROVE_LOCKS_MAX, PROVE_RATE_MAX, PROVE_REPLY_TIMEOUT};
use crate::title;
#[cfg(feature = "tls")]
use crate::{compat_command::shared::set_tls, tls_client::TlsOptions};

/// The variable with the password of the sentinels, if it is another one.
const SENTINEL_PASSWORD_VARIABLE: &str = "REDISCLI_SENTINEL_AUTH";

/// How a target is written.
const TARGET_SYNTAX: &str =
    "redis://[[user]:password@]host[:port][/database], rediss:// for TLS, or unix://path";

/// What several targets can be.
const TOPOLOGIES: &str = "several targets: say what they are with --sentinel NAME, --replicated, \
     --cluster or --redlock";

const EXAMPLES: &str = "\
Examples:
  lockwheel prove --demo redis-sentinel
  lockwheel prove redis://127.0.0.1:6379
  lockwheel prove --sentinel mymaster redis://10.0.0.1:26379 redis://10.0.0.2:26379 --manual
  lockwheel prove --cluster redis://10.0.0.1:7000 --fault 'docker kill redis-1' \\
      --heal 'docker start redis-1' --every 30s --duration 5m
  lockwheel prove --redlock redis://10.0.0.1 redis://10.0.0.2 redis://10.0.0.3 --format html \\
      --output report.html

All keys begin with lockwheel-prove: and are deleted at the end. The environment variable
REDISCLI_AUTH can hold the password; REDISCLI_SENTINEL_AUTH that of the sentinels, if they have
another one. docs/prove.md explains the verdict.

Exit status: 0 nothing was found, which is no proof; 1 a lock was granted twice, lost early or used
by others; 2 the run was not possible.";

/// Loads servers with locks while they fail, and says whether a lock was granted twice or lost
#[derive(Parser)]
#[command(name = "lockwheel prove", bin_name = "lockwheel prove", after_help = EXAMPLES)]
pub(super) struct Arguments {
    #[arg(value_name = "TARGET", required_unless_present_any = ["demo", "print_acl"])]
    #[arg(help = format!("The servers: {TARGET_SYNTAX}"))]
    targets: Vec<String>,
    /// Print the rule of ACL SETUSER that the user of the run needs, and run nothing
    #[arg(long)]
    pub(super) print_acl: bool,
    /// The format of the report
    #[arg(long, value_enum, default_value_t = Form::Text)]
    pub(super) format: Form,
    /// Write the report to this file
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
    #[command(flatten, next_help_heading = "What the targets are")]
    topology: TopologyOptions,
    #[command(flatten, next_help_heading = "Load")]
    load: LoadOptions,
    #[command(flatten, next_help_heading = "Faults")]
    pub(super) faults: FaultOptions,
    #[cfg(feature = "tls")]
    #[command(flatten, next_help_heading = "TLS")]
    tls: TlsOptions,
}

/// What the targets are; at most one of these.
#[derive(Args)]
#[group(multiple = false)]
struct TopologyOptions {
    /// Sentinels; they know the primary by this name
    #[arg(long, value_name = "NAME")]
    sentinel: Option<String>,
    /// Nodes of a Redis Cluster
    #[arg(long)]
    cluster: bool,
    /// Servers of which one is the primary at a time
    #[arg(long)]
    replicated: bool,
    /// Independent servers, for Redlock
    #[arg(long)]
    redlock: bool,
}

#[derive(Args)]
struct LoadOptions {
    /// The number of clients (default: 8; demos have defaults of their own)
    #[arg(long, value_name = "N", value_parser = whole(1, PROVE_CLIENTS_MAX))]
    clients: Option<u32>,
    /// Requests a second, all clients together (default: 100)
    #[arg(long, value_name = "N", value_parser = whole(1, PROVE_RATE_MAX))]
    rate: Option<u32>,
    /// The time after which the run ends: 90s, 5m (default: 60s)
    #[arg(long, value_name = "SPAN")]
    duration: Option<Span>,
    /// The longest lease; it must outlast a failover (default: 30s)
    #[arg(long, value_name = "SPAN")]
    lease: Option<Span>,
    /// The number of locks of each kind at a time (default: 1)
    #[arg(long, value_name = "N", value_parser = whole(1, PROVE_LOCKS_MAX))]
    locks: Option<u32>,
    #[arg(long, value_name = "KIND,KIND", value_delimiter = ',', help = kinds_help())]
    #[arg(value_parser = kind_named)]
    kinds: Vec<&'static LockKind>,
    /// The seed of random choices; random if not given
    #[arg(long, value_name = "S", value_parser = whole(0, u64::MAX))]
    seed: Option<u64>,
}

#[derive(Args)]
pub(super) struct FaultOptions {
    /// You make the servers fail, and press Enter when you have done so
    #[arg(long, conflicts_with_all = ["fault", "pid", "demo"])]
    pub(super) manual: bool,
    /// Run this command of the shell to make the servers fail
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["pid", "demo"])]
    fault: Option<String>,
    /// Run this command to undo --fault
    #[arg(long, value_name = "COMMAND", requires = "fault")]
    heal: Option<String>,
    /// Suspend this process, and let it go on; a server of your own on this machine (may be
    /// repeated)
    #[arg(long, value_name = "PID", conflicts_with = "demo", value_parser = whole(2, i32::MAX))]
    pid: Vec<i32>,
    /// The time from one fault to the next
    #[arg(long, value_name = "SPAN", default_value_t = Span(Duration::from_secs(30)))]
    every: Span,
    /// How long a fault lasts before it is undone (default: half of --every, but at most 10s)
    #[arg(long, value_name = "SPAN")]
    lasts: Option<Span>,
    #[arg(long, value_name = "NAME", conflicts_with_all = ["targets", "TopologyOptions"])]
    #[arg(help = demo_help())]
    pub(super) demo: Option<Demo>,
}

impl Arguments {
    /// The run until `interrupt` is asked. The servers of a demo are started, and end with it.
    ///
    /// # Errors
    /// What is wrong with the options, on one line.
    pub(super) fn plan(&self, interrupt: &Interrupt) -> Result<Plan, String> {
        let mut plan = match self.faults.demo {
            Some(demo) => plan_of(demo)?,
            None => {
                let faults = self.faults.source()?;
                Plan { faults, ..Plan::new(self.target()?) }
            }
        };
        plan.interrupt = interrupt.clone();
        self.apply(&mut plan)?;
        self.check_first_fault(&plan)?;
        Ok(plan)
    }

    /// Refuses a run that ends before its first fault.
    fn check_first_fault(&self, plan: &Plan) -> Result<(), String> {
        let first = self.faults.every.0 / 2;
        let has_schedule = self.faults.fault.is_some() || !self.faults.pid.is_empty();
        match has_schedule && plan.duration <= first {
            true => Err(format!(
                "--duration {}: the first fault comes after half of --every; write more than {}, \
                 or a shorter --every",
                show_span(plan.duration),
                show_span(first)
            )),
            false => Ok(()),
        }
    }

    /// Sets what the options say of the load.
    fn apply(&self, plan: &mut Plan) -> Result<(), String> {
        let LoadOptions { clients, rate, duration, lease, locks, seed, .. } = self.load;
        if !self.load.kinds.is_empty() {
            plan.kinds.clone_from(&self.load.kinds);
        }
        let number = |given: Option<u32>, default: usize| given.map_or(default, |it| it as usize);
        plan.clients = number(clients, plan.clients);
        plan.locks = number(locks, plan.locks);
        plan.rate = rate.unwrap_or(plan.rate);
        plan.duration = duration.map_or(plan.duration, |span| span.0);
        plan.lease = lease.map_or(plan.lease, |span| span.0);
        let random = || getrandom::u64().map_err(|error| format!("no randomness: {error}"));
        plan.seed = seed.map_or_else(random, Ok)?;
        Ok(())
    }

    /// The rules that the user of the run needs, the second one on sentinels. The first one has the
    /// commands of native locks if the targets have such locks, or if they are asked for.
    pub(super) fn acl_rule(&self) -> Result<String, String> {
        let mut kinds = self.load.kinds.clone();
        if kinds.is_empty() && self.topology.redlock {
            kinds.push(&REDLOCK);
        }
        if kinds.is_empty() {
            let has_native = !self.targets.is_empty() && self.target()?.is_lockwheel();
            kinds.extend(LOCK_KINDS.iter().filter(|kind| has_native || !kind.needs_lockwheel));
        }
        let mut rule = Target::acl_rule(&kinds);
        if self.topology.sentinel.is_some() {
            rule = format!("{rule}\n{}", Target::sentinel_acl_rule());
        }
        Ok(rule)
    }

    fn target(&self) -> Result<Target, String> {
        let parsed = self.targets.iter().zip(1..).map(|(target, number)| {
            // It is not shown, since it may have a password.
            let named =
                |problem| format!("target {number}: {problem}; a target is {TARGET_SYNTAX}");
            Address::parse(target).map_err(named)
        });
        let mut addresses = parsed.collect::<Result<Vec<Address>, String>>()?;
        if addresses.iter().any(|address| address.password.is_some()) {
            title::hide_arguments();
        }
        #[cfg(feature = "tls")]
        set_tls(addresses.iter_mut(), &self.tls)?;
        addresses.iter_mut().for_each(complete_password);
        let topology = match &self.topology {
            TopologyOptions { sentinel: Some(name), .. } => Topology::Sentinel(name.clone()),
            TopologyOptions { cluster: true, .. } => Topology::Cluster,
            TopologyOptions { replicated: true, .. } => Topology::Replicated,
            TopologyOptions { redlock: true, .. } => Topology::Independent,
            _ if addresses.len() > 1 => return Err(TOPOLOGIES.to_owned()),
            _ => Topology::Single,
        };
        if topology == Topology::Independent && addresses.len() < 3 {
            let count = addresses.len();
            return Err(format!("--redlock needs at least three targets, and {count} are given"));
        }
        let sentinel_password = std::env::var(SENTINEL_PASSWORD_VARIABLE).ok();
        let sentinel_password = sentinel_password.filter(|password| !password.is_empty());
        let reply_timeout = PROVE_REPLY_TIMEOUT;
        Ok(Target { addresses, topology, reply_timeout, sentinel_password })
    }
}

impl FaultOptions {
    /// The source of the faults; `None` if there are to be none.
    fn source(&self) -> Result<Option<Box<dyn FaultSource>>, String> {
        let (every, lasts) = (self.every.0, self.lasts.map(|span| span.0));
        if let Some(lasts) = self.lasts.filter(|lasts| lasts.0 >= every) {
            let every = self.every;
            return Err(format!("--lasts {lasts}: write less than --every, which is {every}"));
        }
        if self.manual {
            let prompt = |text: &str| {
                let _ = writeln!(io::stderr(), "{NAME}: {text}");
            };
            return Ok(Some(Box::new(Manual::new(BufReader::new(io::stdin()), prompt)?)));
        }
        if let Some(fault) = self.fault.clone() {
            return Ok(Some(Box::new(Hooks::new(fault, self.heal.clone(), every, lasts))));
        }
        if self.pid.is_empty() {
            return Ok(None);
        }
        let processes = Processes::new(&self.pid, every, lasts);
        let problem = |error| format!("--pid: {error}; name a server of this user");
        Ok(Some(Box::new(processes.map_err(problem)?)))
    }
}

/// The run of a demo, whose servers this starts.
fn plan_of(demo: Demo) -> Result<Plan, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let DemoRun { target, faults, clients, rate, lease, locks, duration } =
        demo::start(demo, &program)?;
    let faults = Some(faults);
    Ok(Plan { clients, rate, lease, locks, duration, faults, ..Plan::new(target) })
}

/// Parses a whole number between these.
fn whole<N>(least: N, most: N) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("it is not a whole number from {least} to {most}"))
    }
}

/// The kind of lock of this name.
fn kind_named(name: &str) -> Result<&'static LockKind, String> {
    let known = LOCK_KINDS.iter().chain([&REDLOCK]).find(|kind| kind.name == name);
    known.ok_or_else(|| format!("it is not one of {}", kind_names()))
}

fn kind_names() -> String {
    let names = LOCK_KINDS.iter().chain([&REDLOCK]).map(|kind| kind.name);
    names.collect::<Vec<_>>().join(", ")
}

fn kinds_help() -> String {
    format!(
        "The kinds of locks, of {} (default: all that the servers have; redlock with --redlock)",
        kind_names()
    )
}

fn demo_help() -> String {
    let names = Demo::names().collect::<Vec<_>>().join(", ");
    format!("Start servers on this machine, make them fail, and show the report: {names}")
}

//! Faults that commands of the user inject and undo.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use lockwheel_compat::time::{self, Deadline};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::guard::Guard;
use super::schedule::Schedule;
use super::text::one_line;
use super::{FaultRun, FaultSource};
use crate::clock::now_us;
use crate::record::Fault;

/// The longest time that a command may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// How long a command that injects a fault may go on after the end of the run.
const END_LIMIT: Duration = Duration::from_secs(5);

/// How long the rest of the output is awaited after the end of a command. Processes that it has
/// started in the background can keep the output open.
const REST_LIMIT: Duration = Duration::from_secs(1);

const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The bytes of output that are kept: the last.
const OUTPUT_BYTES_MAX: usize = 4096;

/// Runs a command that injects a fault, and after a while one that undoes it.
pub struct Hooks {
    fault: String,
    heal: Option<String>,
    schedule: Schedule,
    time_limit: Duration,
    /// From before a fault until it is undone. Undoes it if this program is killed.
    guard: Option<Guard>,
}

impl Hooks {
    /// Runs `fault` each `every`, and `heal` after `lasts`: if that is missing, after half of
    /// `every`, but 10 seconds at most. Both are commands for `sh -c`.
    pub fn new(
        fault: String,
        heal: Option<String>,
        every: Duration,
        lasts: Option<Duration>,
    ) -> Hooks {
        let schedule = Schedule::new(every, lasts);
        Hooks { fault, heal, schedule, time_limit: TIME_LIMIT, guard: None }
    }
}

impl FaultSource for Hooks {
    fn wait(&mut self, run: &FaultRun) -> bool {
        self.schedule.wait(run)
    }

    fn inject(&mut self, run: &FaultRun) -> Result<Fault, String> {
        if let Some(heal) = &self.heal {
            self.guard = Some(Guard::start("exec sh -c \"$1\"", &[OsStr::new(heal)])?);
        }
        let begin_us = now_us();
        let outcome = perform(&self.fault, Some(run), self.time_limit);
        let mut name = shown(&self.fault, &outcome);
        if let Some(heal) = &self.heal {
            // A command that failed may have done a part of its work.
            if outcome.is_ok() {
                run.pause(self.schedule.lasts());
            }
            let healed = perform(heal, None, self.time_limit);
            self.guard = None;
            name = format!("{name}, then {}", shown(heal, &healed));
        }
        if outcome.is_err() {
            return Err(name);
        }
        Ok(Fault { name, begin_us, end_us: now_us(), effects: Vec::new() })
    }
}

impl Drop for Hooks {
    /// Undoes a fault after a panic.
    fn drop(&mut self) {
        if let (Some(_), Some(heal)) = (&self.guard, &self.heal) {
            let _ = perform(heal, None, self.time_limit);
        }
    }
}

/// A command and its outcome: the last line of its output, or why it failed.
fn shown(command: &str, outcome: &Result<String, String>) -> String {
    let command = one_line(command);
    match outcome {
        Ok(line) if line.is_empty() => format!("`{command}`"),
        Ok(line) => format!("`{command}` (it printed: {line})"),
        Err(reason) => format!("`{command}` failed: {reason}"),
    }
}

/// Runs a command to its end. Returns the last line of its output.
fn perform(command: &str, run: Option<&FaultRun>, limit: Duration) -> Result<String, String> {
    let (mut child, output) = start(command).map_err(|error| format!("sh: {error}"))?;
    let mut tail = Vec::new();
    let status =
        end_of(&mut child, run, limit, || output.try_iter().for_each(|it| add(&mut tail, it)));
    let rest = Deadline::after(REST_LIMIT);
    while let Ok(chunk) = output.recv_timeout(rest.remaining()) {
        add(&mut tail, chunk);
    }
    let text = String::from_utf8_lossy(&tail);
    let last = text.lines().rev().map(one_line).find(|line| !line.is_empty()).unwrap_or_default();
    let reason = match status {
        Ok(status) if status.success() => return Ok(last),
        Ok(status) => status.to_string(),
        Err(reason) => reason,
    };
    Err(if last.is_empty() { reason } else { format!("{reason}, {last}") })
}

/// Starts a command in a process group of its own. Returns its output, which is read to its end
/// whether it is used or not: otherwise a process in the background could not write any more.
fn start(command: &str) -> io::Result<(Child, Receiver<Vec<u8>>)> {
    let (mut reader, writer) = io::pipe()?;
    let child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .spawn()?;
    let (sender, output) = mpsc::sync_channel(1);
    let read = move || {
        let mut chunk = [0; OUTPUT_BYTES_MAX];
        while let Ok(count @ 1..) = reader.read(&mut chunk) {
            let _ = sender.send(chunk[..count].to_vec());
        }
    };
    thread::Builder::new().name("output".to_owned()).spawn(read)?;
    Ok((child, output))
}

/// Waits for the end of a command. After its time limit its process group is killed.
fn end_of(
    child: &mut Child,
    run: Option<&FaultRun>,
    limit: Duration,
    mut look: impl FnMut(),
) -> Result<ExitStatus, String> {
    let (mut deadline, mut at_end) = (Deadline::after(limit), None);
    loop {
        look();
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        if run.is_some_and(FaultRun::is_over) {
            let at_end = *at_end.get_or_insert_with(|| Deadline::after(END_LIMIT));
            deadline = deadline.min(at_end);
        }
        if deadline.is_over() {
            break;
        }
        time::sleep(LOOK_INTERVAL);
    }
    let group = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    let _ = child.wait();
    Err("it took too long and was killed".to_owned())
}

fn add(tail: &mut Vec<u8>, chunk: Vec<u8>) {
    tail.extend(chunk);
    tail.drain(..tail.len().saturating_sub(OUTPUT_BYTES_MAX));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use lockwheel_compat::Interrupt;

    use super::Hooks;
    use crate::faults::{FaultRun, FaultSource};

    /// The name of the fault that these commands inject in a run that ends, or the error.
    fn name_of(fault: &str, heal: Option<&str>) -> String {
        name_with(fault, heal, super::TIME_LIMIT)
    }

    fn name_with(fault: &str, heal: Option<&str>, limit: Duration) -> String {
        let end = Interrupt::default();
        end.ask();
        let heal = heal.map(str::to_owned);
        let mut hooks = Hooks::new(fault.to_owned(), heal, Duration::from_secs(30), None);
        hooks.time_limit = limit;
        hooks.inject(&FaultRun::new(end)).map_or_else(|problem| problem, |fault| fault.name)
    }

    #[test]
    fn fault_is_undone_although_the_run_ends() {
        let name = name_of("echo one; echo two >&2; echo", Some("echo back"));
        assert_eq!(
            name,
            "`echo one; echo two >&2; echo` (it printed: two), then `echo back` (it printed: back)"
        );
    }

    #[test]
    fn failure_is_an_error_and_is_undone() {
        let name = name_of("echo no such container; exit 3", Some("true"));
        let reason = "failed: exit status: 3, no such container, then `true`";
        assert_eq!(name, format!("`echo no such container; exit 3` {reason}"));
    }

    #[test]
    fn command_with_its_children_is_killed_after_its_time_limit() {
        let limit = Duration::from_secs(3);
        let name = name_with("echo $$; sleep 1000 & sleep 1000", None, limit);
        let (_, group) = name.split_once("it took too long and was killed, ").expect("a failure");
        let of_group = |stat: &String| {
            let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split(' ').collect::<Vec<_>>());
            // A killed process that is not the child of this one is for a moment a zombie.
            fields.is_some_and(|fields| fields[1] != "Z" && fields[3] == group)
        };
        let is_gone = || {
            let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
            let stats = processes.filter_map(|it| fs::read_to_string(it.path().join("stat")).ok());
            (stats.filter(of_group).count() == 0).then_some(())
        };
        // A killed process ends some time after the signal.
        FaultRun::default().wait_for(Duration::from_secs(60), is_gone).expect("no process is left");
    }

    #[test]
    fn process_in_the_background_does_not_delay_the_run_and_is_not_killed() {
        let name = name_of("sleep 1000 & echo $!", None);
        let process = name.rsplit_once("it printed: ").and_then(|(_, rest)| rest.split(')').next());
        let process = process.and_then(|text| text.parse().ok()).expect("a process");
        let process = nix::unistd::Pid::from_raw(process);
        nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    }
}

//! Faults of processes: a process of the user is stopped for a while, and continued.
//!
//! Only processes of the same user are stopped, and each is continued whatever happens. A process
//! that this program has not started is never killed, since this program could not start it again;
//! the servers of a demo are.

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid, geteuid};

use super::guard::Guard;
use super::schedule::Schedule;
use super::{FaultRun, FaultSource};
use crate::clock::now_us;
use crate::record::Fault;

/// The place of the start time behind the name of a process in its file `stat`.
const START_TIME_FIELD: usize = 19;

/// Stops processes in turn.
pub struct Processes {
    processes: Vec<Process>,
    next: usize,
    schedule: Schedule,
}

impl Processes {
    /// Stops one of these processes each `every`, for `lasts`: if that is missing, for half of
    /// `every`, but 10 seconds at most.
    ///
    /// # Errors
    /// If one of them is not a process of this user, or there is none.
    pub fn new(ids: &[i32], every: Duration, lasts: Option<Duration>) -> Result<Processes, String> {
        let processes: Vec<_> =
            ids.iter().map(|id| Process::find(*id)).collect::<Result<_, _>>()?;
        if processes.is_empty() {
            return Err("there is no process to stop".to_owned());
        }
        Ok(Processes { processes, next: 0, schedule: Schedule::new(every, lasts) })
    }
}

impl FaultSource for Processes {
    fn wait(&mut self, run: &FaultRun) -> bool {
        self.schedule.wait(run)
    }

    fn inject(&mut self, run: &FaultRun) -> Result<Fault, String> {
        let process = &self.processes[self.next % self.processes.len()];
        self.next += 1;
        let id = process.id;
        let begin_us = now_us();
        let stopped =
            process.stop().map_err(|reason| format!("SIGSTOP to process {id}: {reason}"))?;
        run.pause(self.schedule.lasts());
        drop(stopped);
        let name = format!("SIGSTOP to process {id}, then SIGCONT");
        Ok(Fault { name, begin_us, end_us: now_us(), effects: Vec::new() })
    }
}

/// A process of the user.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    id: Pid,
    /// When it was started: another process can get its number later. Empty if the system does not
    /// say.
    start: String,
}

impl Process {
    /// Finds a process that may be stopped.
    fn find(id: i32) -> Result<Process, String> {
        if id <= 1 {
            return Err(format!("process {id} is not a server that can be stopped"));
        }
        if i32::try_from(std::process::id()) == Ok(id) {
            return Err(format!("process {id} is this program"));
        }
        let start = match fs::exists("/proc/self/stat").unwrap_or(false) {
            true => start_of(id)?,
            false => {
                check_by_signal(id)?;
                String::new()
            }
        };
        Ok(Process { id: Pid::from_raw(id), start })
    }

    /// Stops it until the value is dropped.
    fn stop(&self) -> Result<Stopped, String> {
        if Process::find(self.id.as_raw())? != *self {
            return Err("it has ended, and another process has its number".to_owned());
        }
        let id = self.id.to_string();
        let guard = Guard::start("kill -CONT \"$1\"", &[OsStr::new(&id)])?;
        kill(self.id, Signal::SIGSTOP).map_err(|error| error.desc().to_owned())?;
        Ok(Stopped { id: self.id, _guard: guard })
    }
}

/// A stopped process. It is continued when this is dropped, or this program ends.
struct Stopped {
    id: Pid,
    _guard: Guard,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.id, Signal::SIGCONT);
    }
}

/// The start time of a process of this user, from the files of Linux.
fn start_of(id: i32) -> Result<String, String> {
    let read = |name: &str| {
        fs::read_to_string(format!("/proc/{id}/{name}"))
            .map_err(|_| format!("there is no process {id}"))
    };
    let (status, stat) = (read("status")?, read("stat")?);
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let user: Vec<u32> =
        user.unwrap_or_default().split_whitespace().map_while(|word| word.parse().ok()).collect();
    // The real and the effective user.
    let [real, effective, ..] = user[..] else {
        return Err(format!("the user of process {id} is unknown"));
    };
    if [real, effective] != [geteuid().as_raw(); 2] {
        return Err(of_another_user(id, Uid::from_raw(effective)));
    }
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = fields.split_whitespace();
    if fields.clone().next() == Some("Z") {
        return Err(format!("process {id} has ended"));
    }
    let start = fields.nth(START_TIME_FIELD).map(str::to_owned);
    start.ok_or_else(|| format!("the start time of process {id} is unknown"))
}

/// Checks that a process exists and is of this user, on systems without such files.
fn check_by_signal(id: i32) -> Result<(), String> {
    if geteuid().is_root() {
        return Err(format!("root cannot see the user of process {id} here: do not be root"));
    }
    kill(Pid::from_raw(id), None).map_err(|error| match error {
        Errno::ESRCH => format!("there is no process {id}"),
        _ => format!("process {id} belongs to another user"),
    })
}

fn of_another_user(id: i32, user: Uid) -> String {
    format!(
        "process {id} belongs to user {user}, and this program runs as user {}: run it as the same \
         user, or inject faults by commands of your own",
        geteuid()
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Child, Command};
    use std::time::Duration;

    use lockwheel_compat::Interrupt;

    use super::{Process, Processes};
    use crate::faults::{FaultRun, FaultSource};

    /// A process that is killed when this is dropped.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Sleeper {
            Sleeper(Command::new("sleep").arg("1000").spawn().expect("sleep runs"))
        }

        fn id(&self) -> i32 {
            self.0.id().try_into().expect("a process number")
        }

        /// Waits for this state: a signal takes effect some time after it was sent.
        fn wait_for_state(&self, state: &str) {
            let is_there = || {
                let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
                stat.rsplit_once(')')?.1.trim_start().starts_with(state).then_some(())
            };
            FaultRun::default().wait_for(Duration::from_secs(60), is_there).expect(state);
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn process_is_stopped_until_the_value_is_dropped() {
        let sleeper = Sleeper::start();
        let stopped = Process::find(sleeper.id()).expect("a process").stop().expect("it stops");
        sleeper.wait_for_state("T");
        drop(stopped);
        sleeper.wait_for_state("S");
    }

    #[test]
    fn process_is_continued_although_the_run_ends() {
        let sleeper = Sleeper::start();
        let every = Duration::from_secs(30);
        let mut source = Processes::new(&[sleeper.id()], every, None).expect("a process");
        let end = Interrupt::default();
        end.ask();
        let fault = source.inject(&FaultRun::new(end.clone())).expect("a fault");
        assert_eq!(fault.name, format!("SIGSTOP to process {}, then SIGCONT", sleeper.id()));
        sleeper.wait_for_state("S");
        let id = sleeper.id();
        drop(sleeper);
        let problem = source.inject(&FaultRun::new(end)).expect_err("no fault");
        assert!(problem.starts_with(&format!("SIGSTOP to process {id}: ")), "{problem}");
    }

    #[test]
    fn only_servers_of_the_same_user_are_stopped() {
        let own = i32::try_from(std::process::id()).expect("a process number");
        for (id, reason) in [
            (-1, "process -1 is not a server that can be stopped"),
            (0, "process 0 is not a server that can be stopped"),
            (1, "process 1 is not a server that can be stopped"),
            (own, &*format!("process {own} is this program")),
            (i32::MAX, "there is no process 2147483647"),
        ] {
            assert_eq!(Process::find(id), Err(reason.to_owned()));
        }
    }
}

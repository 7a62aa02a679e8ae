//! Waiting for programs and conditions, with a limit; and the resources of a process on Linux:
//! descriptors, threads and memory.

use std::fs;
use std::io::{self, Read, Seek};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Variable that is set in a process which [`alone`] has started.
const ALONE_VARIABLE: &str = "LOCKWHEEL_TEST_ALONE";

/// How long [`eventually`] waits. No condition needs nearly as long, so a loaded machine does not
/// fail a test.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Runs a program to its end and returns what it prints, as [`Command::output`].
///
/// # Errors
/// If it cannot be started.
///
/// # Panics
/// As [`end_of`].
pub fn output(command: &mut Command) -> io::Result<Output> {
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    Ok(output_of(child, &format!("the end of {command:?}")))
}

/// What a program prints to its end, as far as it is piped.
///
/// # Panics
/// As [`end_of`].
pub fn output_of(mut child: Child, awaited: &str) -> Output {
    // It may print more than a pipe contains.
    let (stdout, stderr) = (read_beside(child.stdout.take()), read_beside(child.stderr.take()));
    drop(child.stdin.take());
    let status = end_of(&mut child, awaited);
    let text = |reader: JoinHandle<Vec<u8>>| {
        // Its children may go on to print.
        eventually("the end of its output", || reader.is_finished());
        reader.join().expect("no panic")
    };
    Output { status, stdout: text(stdout), stderr: text(stderr) }
}

fn read_beside(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).expect("what it prints");
        }
        bytes
    })
}

/// Waits until a program ends; returns its status.
///
/// # Panics
/// If it does not end in time. It is killed then, and `awaited` is in the message.
pub fn end_of(child: &mut Child, awaited: &str) -> ExitStatus {
    let ended = until(awaited, || child.try_wait().expect("a child"));
    ended.unwrap_or_else(|problem| {
        let _ = child.kill();
        panic!("{problem}")
    })
}

/// Runs `act` in a process without other tests. `name` is that of the calling test.
pub fn alone(name: &str, act: impl FnOnce()) {
    if std::env::var_os(ALONE_VARIABLE).is_some() {
        return act();
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(ALONE_VARIABLE, "1");
    let output = output(&mut command).expect("this program runs");
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output_text.contains("1 passed"),
        "{output_text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The number of open descriptors of this process.
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("a list of descriptors").count()
}

/// The number of threads of this process with this prefix in their names.
pub fn threads(prefix: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("a list of threads");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

/// The resident memory of this process.
pub fn resident_bytes() -> u64 {
    status_kib("self", "VmRSS:") * 1024
}

/// The resident memory of another process.
pub fn resident_bytes_of(process_id: u32) -> u64 {
    status_kib(&process_id.to_string(), "VmRSS:") * 1024
}

/// The states of some threads of this process. All descriptors are opened at the start.
pub struct Threads(Vec<fs::File>);

impl Threads {
    /// Opens a descriptor for each thread with this prefix in its name.
    pub fn watch(prefix: &str) -> Threads {
        let tasks = fs::read_dir("/proc/self/task").expect("a list of threads");
        let folders = tasks.map(|task| task.expect("a thread").path());
        let is_meant = |folder: &PathBuf| {
            fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.starts_with(prefix))
        };
        let files = folders.filter(is_meant).map(|folder| fs::File::open(folder.join("stat")));
        let files: Vec<_> = files.map(|file| file.expect("a status")).collect();
        assert!(!files.is_empty(), "no thread is called {prefix}...");
        Threads(files)
    }

    /// Whether each of them sleeps: none runs or waits for a processor.
    pub fn are_asleep(&mut self) -> bool {
        self.0.iter_mut().all(|file| {
            let mut stat = String::new();
            file.rewind().expect("a status");
            file.read_to_string(&mut stat).expect("a status");
            has_state(&stat, " S")
        })
    }
}

/// The resources of another process at a moment.
#[derive(Clone, Copy, Debug)]
pub struct HeldResources {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Bytes of resident memory.
    pub resident_bytes: u64,
    /// The largest resident memory so far.
    pub resident_bytes_max: u64,
}

impl HeldResources {
    /// The resources of the process of this number.
    pub fn by(process_id: u32) -> HeldResources {
        let count = |folder: &str| {
            let entries = fs::read_dir(format!("/proc/{process_id}/{folder}"));
            entries.expect("the process is there").count()
        };
        let process = process_id.to_string();
        HeldResources {
            descriptors: count("fd"),
            threads: count("task"),
            resident_bytes: status_kib(&process, "VmRSS:") * 1024,
            resident_bytes_max: status_kib(&process, "VmHWM:") * 1024,
        }
    }
}

/// Whether every thread of a process has stopped: a stop signal reaches the threads one by one.
pub fn is_stopped(process_id: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process_id}/task")).expect("a list of threads");
    let mut stats =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats.all(|stat| has_state(&stat, " T"))
}

/// Whether this text of a file `stat` shows this state, which follows the name in parentheses. The
/// name may contain any characters.
fn has_state(stat: &str, state: &str) -> bool {
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(state))
}

fn status_kib(process: &str, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Waits for a condition that does not depend on the clock of the tests.
pub fn eventually(awaited: &str, mut holds: impl FnMut() -> bool) {
    until(awaited, || holds().then_some(())).unwrap_or_else(|problem| panic!("{problem}"));
}

/// As [`eventually`], until there is a result.
///
/// # Errors
/// If that takes too long.
#[expect(clippy::disallowed_methods, reason = "the operating system does not use the tests' clock")]
pub fn until<T>(awaited: &str, mut find: impl FnMut() -> Option<T>) -> Result<T, String> {
    let begin = Instant::now();
    loop {
        if let Some(found) = find() {
            return Ok(found);
        }
        if begin.elapsed() >= TIMEOUT {
            return Err(format!("timed out: {awaited}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

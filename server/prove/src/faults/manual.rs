//! Faults that the user injects by hand, and reports by pressing Enter.

use std::io::BufRead;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use super::text::one_line;
use super::{FaultRun, FaultSource};
use crate::clock::now_us;
use crate::record::Fault;

/// What the user is asked for.
const PROMPT: &str = "press Enter when you have failed over";

/// A wait that only the end of the run ends.
const WITHOUT_END: Duration = Duration::MAX;

/// Reads a line for each fault. A thread of its own reads, so that the run can end meanwhile.
pub struct Manual {
    lines: Receiver<(i64, String)>,
    prompt: Box<dyn FnMut(&str) + Send>,
    reported: Option<(i64, String)>,
    /// When the user was asked.
    asked_us: i64,
}

impl Manual {
    /// Reads lines from `input`, such as the standard input; `prompt` shows what the user is asked
    /// for.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(
        input: impl BufRead + Send + 'static,
        prompt: impl FnMut(&str) + Send + 'static,
    ) -> Result<Manual, String> {
        let (sender, lines) = mpsc::channel();
        let read = move || {
            // The end of the input, or of the run.
            for line in input.lines().map_while(Result::ok) {
                if sender.send((now_us(), line)).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("input".to_owned()).spawn(read);
        thread.map_err(|error| format!("no thread for the input: {error}"))?;
        Ok(Manual { lines, prompt: Box::new(prompt), reported: None, asked_us: 0 })
    }
}

impl FaultSource for Manual {
    fn wait(&mut self, run: &FaultRun) -> bool {
        self.asked_us = now_us();
        (self.prompt)(PROMPT);
        let line = run.wait_for(WITHOUT_END, || match self.lines.try_recv() {
            Ok(line) => Some(Some(line)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        });
        self.reported = line.flatten();
        self.reported.is_some()
    }

    /// The fault happened at some time since the user was asked.
    fn inject(&mut self, _: &FaultRun) -> Result<Fault, String> {
        let (at_us, line) = self.reported.take().ok_or("no fault was reported")?;
        let name = match one_line(&line) {
            line if line.is_empty() => "reported by hand".to_owned(),
            line => format!("reported by hand: {line}"),
        };
        Ok(Fault {
            name,
            begin_us: self.asked_us,
            end_us: at_us.max(self.asked_us),
            effects: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufReader, Cursor, Write};
    use std::sync::{Arc, Mutex};

    use lockwheel_compat::Interrupt;

    use super::Manual;
    use crate::clock::now_us;
    use crate::faults::{FaultRun, FaultSource};

    #[test]
    fn each_line_is_a_fault_until_the_input_ends() {
        let shown = Arc::new(Mutex::new(Vec::new()));
        let prompts = Arc::clone(&shown);
        let prompt = move |text: &str| prompts.lock().expect("a list").push(text.to_owned());
        let mut source = Manual::new(Cursor::new("\nnode 2 is off\n"), prompt).expect("a thread");
        let run = FaultRun::default();
        for name in ["reported by hand", "reported by hand: node 2 is off"] {
            let asked_us = now_us();
            assert!(source.wait(&run));
            let fault = source.inject(&run).expect("a fault");
            assert_eq!(fault.name, name);
            assert!(asked_us <= fault.begin_us && fault.begin_us <= fault.end_us);
        }
        assert!(!source.wait(&run));
        assert_eq!(shown.lock().expect("a list").len(), 3);
    }

    #[test]
    fn end_of_the_run_ends_the_wait_for_a_line() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut source = Manual::new(BufReader::new(reader), |_| ()).expect("a thread");
        let end = Interrupt::default();
        end.ask();
        assert!(!source.wait(&FaultRun::new(end)));
        writer.write_all(b"\n").expect("the input is still open");
    }
}

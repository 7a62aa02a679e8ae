//! Conversations in the format of the compatibility suite's cases (`lockwheel_compat::case`),
//! played on every target in RESP2 and RESP3. Lines that let time pass advance the clock. There
//! may be several servers: `a@2> words` is sent by client `a` to the second server.

use std::io;
use std::time::Duration;

use lockwheel_compat::case::{Case, Step};
use lockwheel_compat::case_player::{Environment, Setting, perform};
use lockwheel_compat::wire;
use lockwheel_compat::wrapping::Wrapping;

use crate::PROTOCOLS;
use crate::target::Target;

/// A conversation and its scripts.
#[derive(Clone, Copy)]
pub struct Conversation<'a> {
    /// The lines.
    pub text: &'a str,
    /// The scripts that the text names: names and Lua texts.
    pub scripts: &'a [(&'a str, &'a str)],
    /// The number of servers.
    pub servers: usize,
}

/// Plays a conversation without scripts on one server of each kind.
pub fn converse(text: &str) {
    converse_with(&[], text);
}

/// Plays a conversation that names scripts on one server of each kind.
pub fn converse_with(scripts: &[(&str, &str)], text: &str) {
    Conversation { text, scripts, servers: 1 }.play();
}

impl Conversation<'_> {
    /// Plays the conversation on every target in every protocol version, each time on empty
    /// servers.
    pub fn play(&self) {
        let steps = Case::parse_steps(self.text).unwrap_or_else(|error| panic!("{error}"));
        for start in [|| Some(Target::lockwheel()), Target::redis] {
            let targets: Vec<_> = (0..self.servers).map_while(|_| start()).collect();
            if targets.len() == self.servers {
                self.play_on(&targets, &steps);
            }
        }
    }

    fn play_on(&self, targets: &[Target], steps: &[Step]) {
        let script = |name: &str| {
            let found = self.scripts.iter().find(|(known, _)| *known == name);
            found.map(|(_, text)| (*text).to_owned())
        };
        for protocol in PROTOCOLS {
            for target in targets {
                target.run("FLUSHALL");
                target.run("SCRIPT FLUSH");
            }
            let key = |name: &str| format!("<{name}>");
            let setting =
                Setting { protocol, key: &key, script: &script, wrapping: Wrapping::None };
            let performance = perform(steps, setting, &mut Servers(targets));
            if let Some(problem) = performance.problem {
                let place = format!("{} RESP{protocol}", targets[0].name());
                let story = performance.transcript.join("\n");
                panic!("{place}: {problem:?}\n{story}");
            }
        }
    }
}

/// Several servers with clocks that can be advanced.
struct Servers<'a>(&'a [Target]);

impl Environment for Servers<'_> {
    fn connect(&mut self, client: &str, protocol: u8) -> io::Result<wire::Wire> {
        let number: usize =
            client.split_once('@').map_or(1, |(_, number)| number.parse().expect("a number"));
        Ok(self.0[number - 1].connect(protocol).into())
    }

    fn pass(&mut self, span: Duration) -> io::Result<()> {
        self.0.iter().for_each(|target| target.advance(span));
        Ok(())
    }
}

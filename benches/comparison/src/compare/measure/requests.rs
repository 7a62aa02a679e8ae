//! Encoded requests with placeholders for the number of a lock.

use lockwheel_compat::wire::request;

use crate::measure::generator::{Batch, Requests};
use lockwheel_benches::Random;

/// The placeholder of a number in a template. No request contains it otherwise.
pub(crate) const NUMBER: &str = "@@@@@@@@@@";

/// Bytes with placeholders of ten digits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    placeholders: Vec<usize>,
}

impl Template {
    /// One request, with a placeholder at every [`NUMBER`].
    pub(crate) fn of(words: &[&str]) -> Template {
        Template::from(request(words))
    }

    /// Bytes with a placeholder at every [`NUMBER`].
    pub(crate) fn from(bytes: Vec<u8>) -> Template {
        let is_placeholder = |at: &usize| bytes[*at..].starts_with(NUMBER.as_bytes());
        let placeholders = (0..bytes.len()).filter(is_placeholder).collect();
        Template { bytes, placeholders }
    }

    /// Replaces every placeholder by a number and returns the bytes.
    pub(crate) fn fill(&mut self, number: u64) -> &[u8] {
        let mut digits = [b'0'; NUMBER.len()];
        let mut rest = number;
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        for &placeholder in &self.placeholders {
            self.bytes[placeholder..placeholder + NUMBER.len()].copy_from_slice(&digits);
        }
        &self.bytes
    }
}

/// A request and its expected reply.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) request: Template,
    /// The number of its arguments.
    pub(crate) words: usize,
    pub(crate) reply: &'static str,
}

impl Step {
    pub(crate) fn new(words: &[&str], reply: &'static str) -> Step {
        Step { request: Template::of(words), words: words.len(), reply }
    }
}

/// Clients that repeat the same steps, each time with another random lock that no other client
/// uses.
pub(crate) struct Cycles {
    batches: Vec<PreparedBatch>,
    clients: Vec<ClientState>,
    /// The number of locks of each client.
    locks_each: u32,
    random: Random,
    sent: Vec<u8>,
}

/// Requests that are sent at once: several whole cycles, or a part of one.
struct PreparedBatch {
    cycles: Vec<Template>,
    /// Whether it uses the lock of the previous batch.
    keeps_lock: bool,
    expected: Vec<u8>,
    operations: u64,
}

/// The position of a client in its steps, and its current lock.
#[derive(Clone, Copy, Default)]
struct ClientState {
    next_batch: usize,
    lock: u64,
}

impl Cycles {
    /// Creates clients that share the locks; up to `pipeline` requests are sent at once.
    pub(crate) fn new(steps: &[Step], pipeline: usize, clients: usize, locks: u32) -> Cycles {
        let cycles = (pipeline / steps.len()).max(1);
        let parts: Vec<&[Step]> = match pipeline {
            1 => steps.chunks(1).collect(),
            _ => vec![steps],
        };
        let last = parts.len() - 1;
        let batch = |(index, part): (usize, &&[Step])| PreparedBatch {
            cycles: vec![concatenate(part); cycles],
            keeps_lock: index > 0,
            expected: part.iter().map(|it| it.reply).collect::<String>().repeat(cycles).into(),
            operations: if index == last { cycles as u64 } else { 0 },
        };
        Cycles {
            batches: parts.iter().enumerate().map(batch).collect(),
            clients: vec![ClientState::default(); clients],
            locks_each: (locks / clients as u32).max(1),
            random: Random::new(),
            sent: Vec::new(),
        }
    }
}

impl Requests for Cycles {
    fn next(&mut self, connection: usize) -> Batch<'_> {
        let clients = self.clients.len() as u64;
        let client = &mut self.clients[connection];
        let index = client.next_batch;
        client.next_batch = (index + 1) % self.batches.len();
        let batch = &mut self.batches[index];
        self.sent.clear();
        for cycle in &mut batch.cycles {
            if !batch.keeps_lock {
                let draw = u64::from(self.random.below(self.locks_each));
                client.lock = draw * clients + connection as u64;
            }
            self.sent.extend_from_slice(cycle.fill(client.lock));
        }
        Batch { sent: &self.sent, reply: index, operations: batch.operations }
    }

    fn expected(&self, reply: usize) -> &[u8] {
        &self.batches[reply].expected
    }
}

/// The requests of the steps in one template.
pub(crate) fn concatenate(steps: &[Step]) -> Template {
    let mut whole = Template::default();
    for Step { request, .. } in steps {
        let begin = whole.bytes.len();
        whole.bytes.extend_from_slice(&request.bytes);
        whole.placeholders.extend(request.placeholders.iter().map(|at| begin + at));
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::{Cycles, NUMBER, Step, Template};
    use crate::measure::generator::Requests;

    #[test]
    fn every_placeholder_is_replaced() {
        let key = format!("lock:{NUMBER}");
        let mut template = Template::of(&["MGET", &key, &key]);
        let filled = "*3\r\n$4\r\nMGET\r\n$15\r\nlock:0000000042\r\n$15\r\nlock:0000000042\r\n";
        assert_eq!(template.fill(7).len(), filled.len());
        assert_eq!(String::from_utf8_lossy(template.fill(42)), filled);
        let mut bytes = Template::from(key.into_bytes());
        assert_eq!(bytes.fill(42), b"lock:0000000042");
    }

    fn steps() -> [Step; 2] {
        [Step::new(&["A", NUMBER], "+A\r\n"), Step::new(&["B", NUMBER], "+B\r\n")]
    }

    /// The second arguments of the requests.
    fn numbers(sent: &[u8]) -> Vec<String> {
        let text = String::from_utf8_lossy(sent);
        text.split("\r\n").filter(|it| it.len() == NUMBER.len()).map(str::to_owned).collect()
    }

    #[test]
    fn steps_of_a_cycle_without_pipeline_share_a_lock() {
        let mut cycles = Cycles::new(&steps(), 1, 2, 1_000_000);
        let mut send = |connection| {
            let batch = cycles.next(connection);
            let sent = (numbers(batch.sent), batch.operations);
            (sent, batch.reply)
        };
        let ((first, none), reply) = send(1);
        let ((second, one), _) = send(1);
        let ((third, _), _) = send(1);
        assert_eq!((first.len(), none, one), (1, 0, 1));
        assert_eq!(first, second);
        assert_ne!(first, third);
        assert_eq!(cycles.expected(reply), b"+A\r\n");
    }

    #[test]
    fn pipeline_contains_whole_cycles() {
        let mut cycles = Cycles::new(&steps(), 6, 2, 1_000_000);
        let batch = cycles.next(0);
        let numbers = numbers(batch.sent);
        assert_eq!((numbers.len(), batch.operations), (6, 3));
        assert_eq!(numbers[0], numbers[1]);
        assert_ne!(numbers[1], numbers[2]);
        assert_eq!(cycles.expected(0), b"+A\r\n+B\r\n+A\r\n+B\r\n+A\r\n+B\r\n");
    }

    #[test]
    fn clients_never_share_a_lock() {
        let mut cycles = Cycles::new(&steps(), 2, 2, 10);
        for _ in 0..100 {
            for client in [0, 1] {
                let number: usize = numbers(cycles.next(client).sent)[0].parse().expect("digits");
                assert_eq!(number % 2, client);
            }
        }
    }
}

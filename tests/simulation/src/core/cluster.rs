//! A cluster as a whole: its operators, and what must be true when all faults have ended.

use std::sync::Arc;

use lockwheel::simulation::raft::{JoinToken, MembershipError, NodeId, NodeStatus};
use parking_lot::Mutex;

use super::{Core, Event};
use crate::machine::peer;

/// Time between two steps of an operator.
const OPERATOR_STEP_US: i64 = 20_000;

/// Time after which an operator asks again.
const ANSWER_TIMEOUT_US: i64 = 3_000_000;

/// Time between two checks whether a cluster has healed.
const CHECK_US: i64 = 50_000;

/// Longest time in which a cluster heals after the last fault.
const HEALING_US_MAX: i64 = 10_000_000;

/// The reply to an operator: the number of a new node, if there is one.
type Answer = Arc<Mutex<Option<Result<Option<NodeId>, MembershipError>>>>;

/// An operator, which asks the leader for one thing after the other.
#[derive(Debug)]
pub(super) struct Operator {
    /// The machine that the order concerns.
    server: usize,
    step: Step,
    /// What was asked: the machine, the generation of its process, the time, and the reply.
    asked: Option<(usize, u64, i64, Answer)>,
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// To lead from now on.
    HandOver(NodeId),
    /// The removal of this node.
    Remove(NodeId),
    /// A join token.
    AddToken,
    /// A number for a new node.
    Admit,
    /// A vote for the new node.
    Enter(NodeId),
    /// Nothing more.
    Done,
}

impl Core {
    pub(super) fn begin_to_replace(&mut self, server: usize) {
        self.begin_to_operate(server, Step::Remove(self.machines[server].node_id()));
    }

    pub(super) fn begin_to_admit(&mut self, server: usize) {
        self.begin_to_operate(server, Step::AddToken);
    }

    pub(super) fn begin_to_hand_over(&mut self, server: usize) {
        self.begin_to_operate(server, Step::HandOver(self.machines[server].node_id()));
    }

    fn begin_to_operate(&mut self, server: usize, step: Step) {
        // Another operator is about to replace it.
        if self.operators.iter().any(|other| other.server == server && other.step != Step::Done) {
            return;
        }
        self.schedule(0, Event::Operator(self.operators.len()));
        self.operators.push(Operator { server, step, asked: None });
    }

    /// Lets an operator go on.
    pub(super) fn operate(&mut self, number: usize) {
        // An election may follow.
        self.disturb(0);
        let Operator { server, step, ref mut asked } = self.operators[number];
        let Some((machine, generation, at_us, answer)) = asked.take() else {
            self.ask(number);
            return self.schedule(OPERATOR_STEP_US, Event::Operator(number));
        };
        let is_gone = self.machines[machine].generation != generation;
        let answered = answer.lock().take();
        match answered {
            None if is_gone || self.now_us - at_us > ANSWER_TIMEOUT_US => {}
            None => {
                self.operators[number].asked = Some((machine, generation, at_us, answer));
            }
            Some(answered) => {
                self.note(|| format!("an operator got for {step:?} of {server}: {answered:?}"));
                self.operators[number].step = self.next_step(server, step, answered);
            }
        }
        if self.operators[number].step != Step::Done {
            self.schedule(OPERATOR_STEP_US, Event::Operator(number));
        }
    }

    /// What an operator asks for after a reply.
    fn next_step(
        &mut self,
        server: usize,
        step: Step,
        answered: Result<Option<NodeId>, MembershipError>,
    ) -> Step {
        // The reply to an earlier order was lost with its leader.
        let is_gone = |id: NodeId| MembershipError::Refused(format!("there is no node {id}"));
        let answered = match (step, answered) {
            (Step::Remove(id), Err(error)) if error == is_gone(id) => Ok(None),
            (_, answered) => answered,
        };
        match (step, answered) {
            (Step::HandOver(_) | Step::Enter(_), Ok(_)) | (Step::HandOver(_), Err(_)) => Step::Done,
            (Step::Remove(_), Ok(_)) => {
                self.drop_connections(server);
                self.recorder.remove(self.now_us, self.machines[server].node_id());
                self.machines[server].replace();
                Step::AddToken
            }
            (Step::AddToken, Ok(_)) => Step::Admit,
            (Step::Admit, Ok(Some(id))) => {
                self.machines[server].set_node_id(id);
                self.schedule(OPERATOR_STEP_US, Event::Start(server));
                Step::Enter(id)
            }
            (Step::Admit, _) => Step::AddToken,
            (step, Err(_)) => step,
            (Step::Done, _) => Step::Done,
        }
    }

    /// Asks the leader, if there is one.
    fn ask(&mut self, number: usize) {
        let Some(leader) = self.leader() else { return };
        let (step, now_us) = (self.operators[number].step, self.now_us);
        let id = self.machines[leader].node_id();
        let machine = &mut self.machines[leader];
        machine.use_clocks(now_us);
        let generation = machine.generation;
        let Some(process) = &mut machine.server else { return };
        let answer = Answer::default();
        let reply = Arc::clone(&answer);
        // A new node after each removal.
        let digest = format!("operator {number}");
        process.ask_node(|node| async move {
            let done = match step {
                Step::HandOver(to) => node.hand_over(to).await.map(|()| None),
                Step::Remove(id) => node.remove(id).await.map(|()| None),
                Step::AddToken => {
                    let token = JoinToken { digest, until: u64::MAX };
                    node.add_token(id, token, 0).await.map(|()| None)
                }
                Step::Admit => {
                    let admitted = node.admit(&digest, 0, peer(&digest)).await;
                    admitted.map(|(id, _)| Some(id))
                }
                Step::Enter(id) => node.enter(id, peer(&digest)).await.map(|()| None),
                Step::Done => Ok(None),
            };
            *reply.lock() = Some(done);
        });
        self.operators[number].asked = Some((leader, generation, now_us, answer));
    }

    /// Ends all faults.
    pub(super) fn heal(&mut self) {
        self.note(|| "all faults end".to_owned());
        self.disturb(0);
        let mut network = self.network.lock();
        network.cut.clear();
        network.bytes_per_second = None;
        drop(network);
        let now_us = self.now_us;
        self.machines.iter_mut().for_each(|machine| machine.heal(now_us));
        self.schedule(CHECK_US, Event::CheckHealed);
    }

    /// Checks whether the cluster has healed, until it has.
    pub(super) fn check_healed(&mut self) {
        match self.unhealed() {
            None => self.is_healed = true,
            Some(text) if self.now_us > self.plan.end_us + HEALING_US_MAX => {
                let seconds = HEALING_US_MAX / 1_000_000;
                self.report("healing", format!("{seconds} s after the last fault, {text}"));
            }
            Some(_) => self.schedule(CHECK_US, Event::CheckHealed),
        }
    }

    /// What keeps the cluster from having healed.
    fn unhealed(&mut self) -> Option<String> {
        let now_us = self.now_us;
        if let Some(operator) = self.operators.iter().find(|it| it.step != Step::Done) {
            return Some(format!("an operator waits: {operator:?}"));
        }
        let Some(leader) = self.leader() else { return Some("no node leads".to_owned()) };
        let mut digests = Vec::new();
        for (number, machine) in self.machines.iter_mut().enumerate() {
            machine.use_clocks(now_us);
            let Some(process) = &machine.server else {
                return Some(format!("server {number} does not run"));
            };
            digests.push(process.digest());
        }
        if let Some(number) = digests.iter().position(|digest| *digest != digests[leader]) {
            return Some(format!("server {number} has another state than {leader}, which leads"));
        }
        let machine = &mut self.machines[leader];
        machine.use_clocks(now_us);
        let status = machine.server.as_ref().and_then(|process| process.node_status())?;
        let is_well = |node: &&NodeStatus| node.is_voter && node.is_in_contact == Some(true);
        let well = status.nodes.values().filter(is_well).count();
        let wanted = self.plan.servers;
        (well != wanted).then(|| format!("{well} of {wanted} nodes vote: {status:?}"))
    }
}

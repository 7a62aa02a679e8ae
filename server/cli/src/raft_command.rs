//! `lockwheel raft`: begins a cluster, adds nodes to it, shows and removes them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lockwheel::Settings;
use lockwheel::replication::{
    NodeStatus, Status, begin_cluster, begin_cluster_from, join_cluster, lead, lost_voters,
    new_token, remove_node, status,
};
use lockwheel_engine::settings::directive;

use crate::{fail, print, server_main};

const EXAMPLES: &str = "\
init and join also start the server. Later it is started as any server, with the same directives.

Examples:
  lockwheel raft init --dir /var/lib/lockwheel --raft-port 7379 --bind 10.0.0.1
  lockwheel raft init --from /backup/raft --dir /var/lib/lockwheel --raft-port 7379 --bind 10.0.0.1
  lockwheel raft join TOKEN --dir /var/lib/lockwheel --raft-port 7379 --bind 10.0.0.2
  lockwheel raft status --dir /var/lib/lockwheel
  lockwheel raft lead 2 --dir /var/lib/lockwheel
  lockwheel raft remove 3 --dir /var/lib/lockwheel";

/// Begins a cluster of servers that replicate their log, and changes its nodes
#[derive(Parser)]
#[command(name = "lockwheel raft", bin_name = "lockwheel raft", after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Begin a cluster and start its first node; prints a join token
    Init {
        /// Begin with the log in this directory: of a stopped server (appendonlydir), of a stopped
        /// node of another cluster (raft), or a copy of one of them
        #[arg(long, value_name = "DIRECTORY")]
        from: Option<PathBuf>,
        /// The arguments of the server, with raft-port
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SERVER ARGUMENT")]
        server: Vec<String>,
    },
    /// Join the cluster of a token, and start the new node
    Join {
        /// The join token
        token: String,
        /// The arguments of the server, with raft-port
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SERVER ARGUMENT")]
        server: Vec<String>,
    },
    /// Print another join token, for one node
    Token {
        #[command(flatten)]
        node: OwnNode,
        /// How long it is valid
        #[arg(long, value_name = "HOURS", default_value_t = 24)]
        hours: u32,
    },
    /// Show the nodes of the cluster
    Status {
        #[command(flatten)]
        node: OwnNode,
    },
    /// Have a node lead, before work on the machine of the leader
    Lead {
        /// The number of the node
        number: u64,
        #[command(flatten)]
        node: OwnNode,
    },
    /// Remove a node for good: it can only come back under another number
    Remove {
        /// The number of the node
        number: u64,
        #[command(flatten)]
        node: OwnNode,
    },
}

/// The node on this machine.
#[derive(clap::Args)]
struct OwnNode {
    /// The directory of the server on this machine
    #[arg(long, default_value = ".")]
    dir: PathBuf,
}

/// Runs the subcommand with the arguments after `raft`, the program's name first.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Standard output may be closed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX));
        }
    };
    let program = args.first().cloned().unwrap_or_default();
    let with_program = |server| [vec![program], server].concat();
    let done = match arguments.action {
        Action::Init { from, server } => {
            return server_main(&with_program(server), |settings| begin(settings, from.as_deref()));
        }
        Action::Join { token, server } => {
            return server_main(&with_program(server), |settings| join(settings, &token));
        }
        Action::Token { node, hours } => {
            let valid = Duration::from_secs(u64::from(hours) * 3_600);
            new_token(&node.dir, Some(valid))
        }
        Action::Status { node } => status(&node.dir).map(|status| table(&status)),
        Action::Lead { number, node } => {
            lead(&node.dir, number).map(|()| format!("node {number} leads"))
        }
        Action::Remove { number, node } => {
            remove_node(&node.dir, number).map(|()| format!("node {number} is removed"))
        }
    };
    match done {
        Ok(text) => print(&text),
        Err(error) => fail(&format!("lockwheel raft: {error}")),
    }
}

fn begin(settings: &Settings, from: Option<&Path>) -> Result<(), String> {
    let begun = match from {
        None => begin_cluster(settings),
        Some(from) => begin_cluster_from(settings, from).map(|(token, taken)| {
            print(&taken.to_string());
            token
        }),
    };
    let token = begun.map_err(|error| error.to_string())?;
    let port = settings.get(directive::RAFT_PORT);
    // The start of a job, whose output is kept: a token there would admit any reader of it.
    if settings.get(directive::END_WITH_STDIN) {
        print("A cluster begins with this node; 'lockwheel raft token' prints a join token.");
        return Ok(());
    }
    print(&format!(
        "A cluster begins with this node. To add a node, run this on its machine, with an address \
         by which it is reached; the token admits one node within 24 hours:\n\n  \
         lockwheel raft join {token} --dir DIRECTORY --raft-port {port} --bind ADDRESS\n"
    ));
    Ok(())
}

fn join(settings: &Settings, token: &str) -> Result<(), String> {
    let number = join_cluster(settings, token).map_err(|error| error.to_string())?;
    print(&format!("This is node {number} of the cluster."));
    let dir = settings.get(directive::DIR);
    // The node has joined, whether or not the others answer now.
    for (lost, address) in lost_voters(dir.as_ref()).unwrap_or_default() {
        print(&format!(
            "Warning: node {lost} at {address} is not in contact, and still counts for the \
             majority. If it is gone for good, remove it:\n\n  \
             lockwheel raft remove {lost} --dir {dir}\n"
        ));
    }
    Ok(())
}

/// The nodes, one per line.
fn table(status: &Status) -> String {
    let (cluster, term) = (&status.cluster, status.term);
    let leader = status.leader.map_or("none".to_owned(), |leader| leader.to_string());
    let mut text = format!("cluster {cluster}, term {term}, leader {leader}\n");
    let mut line = |columns: [&str; 6]| {
        let [node, role, contact, behind, address, clients] = columns;
        let columns =
            format!("{node:>8}  {role:<8}  {contact:<7}  {behind:>7}  {address:<22}  {clients}");
        // Writing to a string does not fail.
        let _ = write!(text, "\n{}", columns.trim_end());
    };
    line(["node", "role", "contact", "behind", "address", "address for clients"]);
    for (id, NodeStatus { peer, is_voter, is_in_contact, matched_index }) in &status.nodes {
        let role = match is_voter {
            _ if status.leader == Some(*id) => "leader",
            true => "follower",
            false => "learner",
        };
        let contact = is_in_contact.map_or("unknown", |is| if is { "yes" } else { "no" });
        let matched = matched_index.zip(status.last_index);
        let behind = matched
            .map_or(String::new(), |(matched, last)| last.saturating_sub(matched).to_string());
        line([&id.to_string(), role, contact, &behind, &peer.address, &peer.client_address]);
    }
    let without_key = status.nodes.iter().filter(|(_, node)| node.peer.fingerprint.is_empty());
    let without_key: Vec<String> = without_key.map(|(id, _)| id.to_string()).collect();
    if !without_key.is_empty() {
        text += "\n\nwithout a key, since they run an earlier program: ";
        text += &without_key.join(", ");
    }
    text
}

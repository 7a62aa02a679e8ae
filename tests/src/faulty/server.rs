//! The threads of a faulty server: one accepts connections, one runs the engine.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use super::SeededFault;
use super::connections::{Connections, Recording, SocketEvent};
use super::faulty_engine::FaultyEngine;
use crate::replay::Input;

/// Scripts that run call by call are nested as deep as the number of clients.
const STACK_BYTES: usize = 64 << 20;

/// Recorded inputs.
pub type Inputs = Arc<Mutex<Vec<Input>>>;

/// A server with or without a fault. Stops when it is dropped.
#[derive(Debug)]
pub struct FaultyServer {
    address: SocketAddr,
    sender: Sender<SocketEvent>,
    threads: Vec<JoinHandle<()>>,
}

impl FaultyServer {
    /// Starts a server on a free port.
    pub fn start(fault: Option<&'static SeededFault>) -> io::Result<FaultyServer> {
        FaultyServer::start_with(fault, None)
    }

    /// Starts a server without a fault, which records all inputs of its engine; the first one is
    /// the time at which the engine was created, with the default settings and
    /// [`SEED`](super::SEED).
    pub fn recorded() -> io::Result<(FaultyServer, Inputs)> {
        let inputs = Inputs::default();
        let recording = Recording { inputs: Arc::clone(&inputs), polls: None };
        Ok((FaultyServer::start_with(None, Some(recording))?, inputs))
    }

    fn start_with(
        fault: Option<&'static SeededFault>,
        recording: Option<Recording>,
    ) -> io::Result<FaultyServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (mut connections, sender) = Connections::new();
        connections.recording = recording;
        let acceptor = {
            let sender = sender.clone();
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let _ = stream.set_nodelay(true);
                    if sender.send(SocketEvent::Connected(stream)).is_err() {
                        break;
                    }
                }
            })
        };
        let engine = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || FaultyEngine::new(connections, fault).run_loop())?;
        Ok(FaultyServer { address, sender, threads: vec![engine, acceptor] })
    }

    /// The URL of the server.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        let _ = self.sender.send(SocketEvent::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
            // Wakes the accepting thread, which then ends.
            let _ = TcpStream::connect(self.address);
        }
    }
}

//! A faulty server's threads: one lets clients in, one runs everything.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use super::Fault;
use super::crowd::{Crowd, Event};
use super::world::World;

/// Scripts that run call by call are nested as deep as there are clients.
const STACK_BYTES: usize = 64 << 20;

/// A server with a fault, or with none. Ends when it is dropped.
#[derive(Debug)]
pub struct FaultyServer {
    address: SocketAddr,
    sender: Sender<Event>,
    threads: Vec<JoinHandle<()>>,
}

impl FaultyServer {
    /// Starts one on a free port.
    pub fn start(fault: Option<&'static Fault>) -> io::Result<FaultyServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (crowd, sender) = Crowd::new();
        let doorkeeper = {
            let sender = sender.clone();
            thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let _ = stream.set_nodelay(true);
                    if sender.send(Event::Came(stream)).is_err() {
                        break;
                    }
                }
            })
        };
        let everything = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn(move || World::new(crowd, fault).live())?;
        Ok(FaultyServer { address, sender, threads: vec![everything, doorkeeper] })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        let _ = self.sender.send(Event::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
            // Whoever waits at the door finds that nobody listens any more.
            let _ = TcpStream::connect(self.address);
        }
    }
}

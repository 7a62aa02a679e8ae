//! The clients that receive all requests: `MONITOR`.

use bytes::{BufMut, BytesMut};
use lockwheel_resp::words::quote;

use crate::sessions::{ClientId, Sessions};

impl Sessions {
    /// Sends a client all requests from now on; false if it receives them already.
    pub(crate) fn start_monitoring(&mut self, client: ClientId) -> bool {
        let Some(state) = self.get_mut(client) else { return false };
        if state.is_monitor {
            return false;
        }
        state.is_monitor = true;
        self.monitors.insert(client);
        true
    }

    /// Ends what [`Sessions::start_monitoring`] has begun.
    pub(crate) fn stop_monitoring(&mut self, client: ClientId) {
        if let Some(state) = self.get_mut(client)
            && std::mem::take(&mut state.is_monitor)
        {
            self.monitors.remove(&client);
        }
    }

    /// Sends a request to all monitors. `source` is its client, or the script that has called it.
    pub(crate) fn show_to_monitors(
        &mut self,
        wall_us: i64,
        database: usize,
        source: &str,
        words: &[&[u8]],
    ) {
        let mut line = BytesMut::new();
        let (seconds, micros) = (wall_us.div_euclid(1_000_000), wall_us.rem_euclid(1_000_000));
        line.put_slice(format!("+{seconds}.{micros:06} [{database} {source}]").as_bytes());
        for word in words {
            line.put_u8(b' ');
            quote(word, &mut line);
        }
        line.put_slice(b"\r\n");
        let monitors = std::mem::take(&mut self.monitors);
        for &client in &monitors {
            if let Some(state) = self.clients.get_mut(client) {
                state.pending.extend_from_slice(&line);
                self.queue_delivery(client);
            }
        }
        self.monitors = monitors;
    }
}

//! The asynchronous runtime of `openraft`: tokio. In a simulation, its random numbers follow from a
//! seed.

#[cfg(not(feature = "simulation"))]
pub(crate) use openraft::TokioRuntime as AsyncRuntime;
#[cfg(feature = "simulation")]
pub(crate) use simulated::SimulatedRuntime as AsyncRuntime;
#[cfg(feature = "simulation")]
pub use simulated::set_seed;

#[cfg(feature = "simulation")]
mod simulated {
    use std::cell::Cell;
    use std::time::Duration;

    use openraft::{AsyncRuntime, OptionalSend, TokioRuntime};
    use rand::{Error, RngCore};

    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }

    /// Sets the seed of the random numbers that `openraft` draws on this thread.
    pub fn set_seed(seed: u64) {
        STATE.set(seed);
    }

    /// The runtime of a simulation.
    #[derive(Debug, Default, PartialEq, Eq)]
    pub struct SimulatedRuntime;

    /// The random numbers of this thread, by the algorithm SplitMix64.
    #[derive(Clone, Copy, Debug)]
    pub struct SeededNumbers;

    impl RngCore for SeededNumbers {
        fn next_u32(&mut self) -> u32 {
            (self.next_u64() >> 32) as u32
        }

        fn next_u64(&mut self) -> u64 {
            let state = STATE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
            STATE.set(state);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        }

        fn fill_bytes(&mut self, bytes: &mut [u8]) {
            for chunk in bytes.chunks_mut(8) {
                chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
            }
        }

        fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
            self.fill_bytes(bytes);
            Ok(())
        }
    }

    type Tokio = TokioRuntime;

    impl AsyncRuntime for SimulatedRuntime {
        type JoinError = <Tokio as AsyncRuntime>::JoinError;
        type JoinHandle<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::JoinHandle<T>;
        type Sleep = <Tokio as AsyncRuntime>::Sleep;
        type Instant = <Tokio as AsyncRuntime>::Instant;
        type TimeoutError = <Tokio as AsyncRuntime>::TimeoutError;
        type Timeout<R, T: Future<Output = R> + OptionalSend> =
            <Tokio as AsyncRuntime>::Timeout<R, T>;
        type ThreadLocalRng = SeededNumbers;
        type OneshotSender<T: OptionalSend> = <Tokio as AsyncRuntime>::OneshotSender<T>;
        type OneshotReceiver<T: OptionalSend> = <Tokio as AsyncRuntime>::OneshotReceiver<T>;
        type OneshotReceiverError = <Tokio as AsyncRuntime>::OneshotReceiverError;

        fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
        where
            T: Future + OptionalSend + 'static,
            T::Output: OptionalSend + 'static,
        {
            Tokio::spawn(future)
        }

        fn sleep(duration: Duration) -> Self::Sleep {
            Tokio::sleep(duration)
        }

        fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
            Tokio::sleep_until(deadline)
        }

        fn timeout<R, F: Future<Output = R> + OptionalSend>(
            duration: Duration,
            future: F,
        ) -> Self::Timeout<R, F> {
            Tokio::timeout(duration, future)
        }

        fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
            deadline: Self::Instant,
            future: F,
        ) -> Self::Timeout<R, F> {
            Tokio::timeout_at(deadline, future)
        }

        fn is_panic(error: &Self::JoinError) -> bool {
            Tokio::is_panic(error)
        }

        fn thread_rng() -> Self::ThreadLocalRng {
            SeededNumbers
        }

        fn oneshot<T: OptionalSend>() -> (Self::OneshotSender<T>, Self::OneshotReceiver<T>) {
            Tokio::oneshot()
        }
    }
}

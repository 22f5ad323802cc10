//! The runtime openraft runs on: tokio's, but who waits for a watched value is woken in the order
//! of waiting. tokio's own watch channel shuffles its waiters by a random number that only an
//! unstable switch can seed, and a simulation would not repeat. It adds nothing else.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use openraft::rt::watch::{RecvError, SendError, Watch, WatchReceiver, WatchSender};
use openraft::rt::{AsyncRuntime, OptionalSend, OptionalSync};
use openraft_rt_tokio::TokioRuntime;
use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// tokio with an ordered watch channel.
#[derive(Debug)]
pub struct OrderedRuntime(TokioRuntime);

impl AsyncRuntime for OrderedRuntime {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = <TokioRuntime as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> =
        <TokioRuntime as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <TokioRuntime as AsyncRuntime>::Mpsc;
    type Watch = OrderedWatch;
    type Oneshot = <TokioRuntime as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <TokioRuntime as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        TokioRuntime::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn new(threads: usize) -> Self {
        OrderedRuntime(TokioRuntime::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}

/// Watch channels that wake in order.
#[derive(Debug)]
pub struct OrderedWatch;

impl Watch for OrderedWatch {
    type Sender<T: OptionalSend + OptionalSync> = Sender<T>;
    type Receiver<T: OptionalSend + OptionalSync> = Receiver<T>;
    type Ref<'a, T: OptionalSend + 'a> = RwLockReadGuard<'a, T>;

    fn channel<T: OptionalSend + OptionalSync>(init: T) -> (Sender<T>, Receiver<T>) {
        let shared = Arc::new(Watched {
            value: RwLock::new(init),
            version: AtomicU64::new(0),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            changed: Notify::new(),
        });
        (Sender(Arc::clone(&shared)), Receiver { shared, seen: 0 })
    }
}

/// The watched value.
struct Watched<T> {
    value: RwLock<T>,
    /// Counts the changes.
    version: AtomicU64,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    changed: Notify,
}

/// The changing side.
pub struct Sender<T>(Arc<Watched<T>>);

/// The watching side.
pub struct Receiver<T> {
    shared: Arc<Watched<T>>,
    seen: u64,
}

impl<T> Watched<T> {
    fn change(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.value.write();
        if !change(&mut value) {
            return false;
        }
        // Under the lock: who reads the value reads its version.
        self.version.fetch_add(1, Ordering::SeqCst);
        drop(value);
        self.changed.notify_waiters();
        true
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::SeqCst);
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::SeqCst);
        Receiver { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receivers.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: OptionalSend + OptionalSync> WatchSender<OrderedWatch, T> for Sender<T> {
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.0.receivers.load(Ordering::SeqCst) == 0 {
            return Err(SendError(value));
        }
        self.0.change(|current| {
            *current = value;
            true
        });
        Ok(())
    }

    fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        self.0.change(modify)
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.0.value.read_recursive()
    }

    fn subscribe(&self) -> Receiver<T> {
        self.0.receivers.fetch_add(1, Ordering::SeqCst);
        Receiver { shared: Arc::clone(&self.0), seen: self.0.version() }
    }
}

impl<T: OptionalSend + OptionalSync> WatchReceiver<OrderedWatch, T> for Receiver<T> {
    async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            let notified = self.shared.changed.notified();
            tokio::pin!(notified);
            // From here on no change is missed.
            notified.as_mut().enable();
            let version = self.shared.version();
            if version != self.seen {
                self.seen = version;
                return Ok(());
            }
            if self.shared.senders.load(Ordering::SeqCst) == 0 {
                return Err(RecvError(()));
            }
            notified.await;
        }
    }

    fn borrow_watched(&self) -> RwLockReadGuard<'_, T> {
        self.shared.value.read_recursive()
    }

    fn borrow_and_update(&mut self) -> RwLockReadGuard<'_, T> {
        let value = self.shared.value.read_recursive();
        self.seen = self.shared.version();
        value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_in_the_order_of_waiting() {
        let (sender, receiver) = OrderedWatch::channel(0);
        for _ in 0..20 {
            let woken = Arc::new(Mutex::new(Vec::new()));
            let tasks: Vec<_> = (0..16)
                .map(|number| {
                    let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
                    tokio::spawn(async move {
                        receiver.changed().await.unwrap();
                        woken.lock().unwrap().push(number);
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            sender.send(1).unwrap();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(*woken.lock().unwrap(), (0..16).collect::<Vec<_>>());
        }
        drop(receiver);
        assert!(sender.send(2).is_err());
    }

    #[test]
    fn it_keeps_what_openraft_asks_of_a_runtime() {
        openraft::rt::testing::Suite::<OrderedRuntime>::test_all();
    }
}
